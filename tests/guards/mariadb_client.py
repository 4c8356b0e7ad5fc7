"""A connection to MariaDB, by libmariadb itself: nothing else has to be installed."""
import ctypes


class Failed(Exception):
    """What the server said of a statement, and its SQLSTATE."""
    def __init__(self, state, text):
        super().__init__(text)
        self.state = state


class Connection:
    def __init__(self, socket, user):
        self.my = ctypes.CDLL('libmariadb.so.3')
        for name in ('mysql_init', 'mysql_real_connect', 'mysql_store_result'):
            getattr(self.my, name).restype = ctypes.c_void_p
        self.my.mysql_fetch_row.restype = ctypes.POINTER(ctypes.c_char_p)
        for name in ('mysql_error', 'mysql_sqlstate'):
            getattr(self.my, name).restype = ctypes.c_char_p
        self.void = ctypes.c_void_p
        self.db = self.void(self.my.mysql_init(None))
        if not self.my.mysql_real_connect(self.db, None, user.encode(), None, b'holdfast', 0,
                                          socket.encode(), ctypes.c_ulong(0)):
            raise RuntimeError(self.my.mysql_error(self.db).decode())

    def __del__(self):
        self.my.mysql_close(self.db)

    def ask(self, sql):
        """The number in the first column of the first row; None: there is none."""
        if self.my.mysql_query(self.db, sql.encode()):
            raise Failed(self.my.mysql_sqlstate(self.db).decode(),
                         self.my.mysql_error(self.db).decode())
        rows = self.void(self.my.mysql_store_result(self.db))
        if not rows:
            return None
        row = self.my.mysql_fetch_row(rows)
        n = int(row[0]) if row else None
        self.my.mysql_free_result(rows)
        return n
