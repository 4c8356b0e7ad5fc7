# Completion of holdfast for bash: commands, options, and the keys that are in use.

# Joins what readline has split at ":", "=" and "@": each store has a ":", and keys may. Sets words;
# cword, the place of the last; and at, which of COMP_WORDS each begins with.
_holdfast_words() {
    local i blanks rest=$COMP_LINE
    words=() at=()
    for ((i = 0; i <= COMP_CWORD; i++)); do
        blanks=${rest%%[![:blank:]]*}
        rest=${rest#"$blanks"}
        rest=${rest#"${COMP_WORDS[i]}"}
        if [[ $i -eq 0 || -n $blanks ]]; then
            words+=("${COMP_WORDS[i]}") at+=("$i")
        else
            words[${#words[@]} - 1]+=${COMP_WORDS[i]}
        fi
    done
    cword=$((${#words[@]} - 1))
}

# The words that complete $1, one a line on stdin; those with blanks stay whole.
_holdfast_reply() {
    local line quoted
    COMPREPLY=()
    while IFS= read -r line; do
        printf -v quoted %q "$line"
        if [[ -n $line && ($line == "$1"* || $quoted == "$1"*) ]]; then
            COMPREPLY+=("${quoted#"$kept"}")
        fi
    done
}

# The keys of the store that is named on this command line, or by the environment.
_holdfast_keys() {
    local i store=()
    for ((i = 1; i < cword; i++)); do
        case ${words[i]} in
        -S | --store) store=(-S "${words[i + 1]//[\"\']/}") ;;
        --store=*) store=(-S "${words[i]#*=}") ;;
        esac
    done
    timeout 2 holdfast "${store[@]}" ls "$@" --json 2>/dev/null |
        sed -n 's/^{"key":"\(\([^"\\]\|\\.\)*\)",.*/\1/p' | sed 's/\\\(.\)/\1/g'
}

_holdfast() {
    local words at cword
    _holdfast_words
    local word=${words[cword]} before=${words[cword - 1]} command='' i
    local kept=${word%"$2"} # readline replaces $2, which is the rest of the word
    local wait='-n --nonblock -w --wait -E --conflict-exit-code -v --verbose -q --quiet'
    wait+=' --owner'
    local mode='-s --shared -x --exclusive --limit'
    local run='--lease --max-hold --on-lost -o --close'
    local fork='-F --no-fork'
    local options='-S --store -V --version -h --help'
    for ((i = 1; i < cword; i++)); do
        case ${words[i]} in
        -S | --store) ((i++)) ;;
        -*) ;;
        *) command=${words[i]} && break ;;
        esac
    done
    # Behind "--" it is somebody else's command line.
    for ((; i < cword; i++)); do
        if [[ ${words[i]} == -- ]]; then
            if declare -F _command_offset >/dev/null; then
                _command_offset "${at[i + 1]}"
            elif ((i + 1 == cword)); then
                mapfile -t COMPREPLY < <(compgen -c -- "${word#"$kept"}")
            else
                mapfile -t COMPREPLY < <(compgen -f -- "${word#"$kept"}")
            fi
            return
        fi
    done
    case $before in
    --on-lost) _holdfast_reply "$word" <<<$'term\nkill\nignore' && return ;;
    --keep) _holdfast_reply "$word" <<<$'forever\n7d\n30d' && return ;;
    -w | --wait | --timeout | -E | --conflict-exit-code | --limit | --lease | --max-hold | \
        --at-least | --owner | --token | --idle | --key-column | --key-prefix | --schema | \
        --locks | --locks-schema | --lock | --data | --token-field | --max-lease) return ;;
    -S | --store) _holdfast_reply "$word" <<<$'file:\n@' && return ;;
    esac
    case $command in
    run) options+=" $wait $mode $run $fork --at-least --" ;;
    once) options+=" $wait $run --keep --at-most-once --" ;;
    acquire) options+=" $wait $mode --lease --json" ;;
    renew) options+=' --token --lease --json' ;;
    enter | release | break) options+=' --token' ;;
    ls) options+=' -a --all -v --verbose --json' ;;
    show | watch) options+=' -v --verbose --json' ;;
    stores | doctor | bench) options+=' --json' ;;
    prune) options+=' --idle --json' ;;
    guard)
        options+=' --key-column --key-prefix --schema --locks --locks-schema --elsewhere --undo'
        options+=' --lock --data --owner --token-field --max-lease'
        ;;
    esac
    if [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
    elif [[ -z $command ]]; then
        mapfile -t COMPREPLY < <(compgen -W 'run once acquire renew enter release ls show watch
            break forget prune guard stores doctor bench help' -- "$word")
    else
        case $command in
        run | once | acquire | ls | show | watch)
            _holdfast_reply "$word" < <(_holdfast_keys --all)
            ;;
        forget) _holdfast_reply "$word" < <(_holdfast_keys --all) ;;
        renew | enter | release | break) _holdfast_reply "$word" < <(_holdfast_keys) ;;
        guard) _holdfast_reply "$word" <<<$'postgres\nmariadb\nsqlite\nfirestore\nredis\nmongodb' ;;
        esac
    fi
}

complete -F _holdfast holdfast
