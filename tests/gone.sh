# shellcheck shell=sh
# Does nothing run under this number any more? A process that is stopped at once is a zombie as soon
# as its first thread has ended, and the others still have its files and its ports.
gone() {
    ! kill -0 "$1" 2>/dev/null || {
        grep -q '^State:.[ZX]' "/proc/$1/status" 2>/dev/null &&
            [ "$(echo "/proc/$1/task/"*)" = "/proc/$1/task/$1" ]
    }
}
