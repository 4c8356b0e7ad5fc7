"""The options of lock, acquire, locked and once, as types."""
import datetime
from typing import Optional, TypedDict, Union

Time = Union[int, float, str, datetime.timedelta]


class Options(TypedDict, total=False):
    """Of lock, acquire and locked; `import holdfast; help(holdfast)` says what they mean."""
    wait: Optional[Time]
    lease: Optional[Time]
    max_hold: Optional[Time]
    at_least: Optional[Time]
    shared: Optional[bool]
    limit: Optional[int]
    detached: Optional[bool]
    unqueued: Optional[bool]
    recursive: Optional[bool]
    no_renew: Optional[bool]
    owner: Optional[str]
    note: Optional[str]
    request_id: Union[bytes, str, None]


class OnceOptions(Options, total=False):
    """Of once."""
    keep: Optional[Time]
    at_most_once: Optional[bool]
