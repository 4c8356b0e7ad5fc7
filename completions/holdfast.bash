# Completion of holdfast for bash: commands, options, and the keys that are in use.

# Joins what readline has split at ":", "=" and "@": each store has a ":", and keys may. Sets words,
# up to the cursor; cword, the place of the last; and at, which of COMP_WORDS each begins with.
_holdfast_words() {
    local i blanks piece rest=${COMP_LINE:0:COMP_POINT}
    words=() at=()
    for ((i = 0; i <= COMP_CWORD; i++)); do
        blanks=${rest%%[![:blank:]]*}
        rest=${rest#"$blanks"}
        piece=${COMP_WORDS[i]}
        ((i < COMP_CWORD)) || piece=$rest
        rest=${rest#"$piece"}
        if [[ $i -eq 0 || -n $blanks ]]; then
            words+=("$piece") at+=("$i")
        else
            words[${#words[@]} - 1]+=$piece
        fi
    done
    cword=$((${#words[@]} - 1))
}

# Sets plain, which is what a shell takes the word $1 for; and quote, the quote that is still open.
_holdfast_plain() {
    local rest=$1 c
    plain='' quote=''
    while [[ -n $rest ]]; do
        c=${rest:0:1} rest=${rest:1}
        if [[ $c == "$quote" ]]; then
            quote=''
        elif [[ -z $quote && $c == [\'\"] ]]; then
            quote=$c
        elif [[ $c == \\ && (-z $quote || $quote$rest == \"[\"\\\$\`]*) ]]; then
            plain+=${rest:0:1} rest=${rest:1}
        else
            plain+=$c
        fi
    done
}

# The words that complete $1, one a line on stdin, quoted as $1 is; those with blanks stay whole.
# Readline replaces what is behind $kept.
_holdfast_reply() {
    local line plain quote there
    _holdfast_plain "$kept"
    there=${#plain}
    _holdfast_plain "$1"
    COMPREPLY=()
    while IFS= read -r line; do
        [[ $line == "$plain"* && -n ${line:there} ]] || continue
        line=${line:there}
        case $quote in
        \') line=${line//\'/\'\\\'\'} ;;
        \") line=$(sed 's/["\\$`]/\\&/g' <<<"$line") ;;
        *) printf -v line %q "$line" ;;
        esac
        COMPREPLY+=("$line")
    done
}

# The keys of the store that is named on this command line, or by the environment.
_holdfast_keys() {
    local i plain quote store=()
    for ((i = 1; i < cword; i++)); do
        case ${words[i]} in
        --) break ;;
        -S | --store) _holdfast_plain "${words[++i]}" ;;
        --store=*) _holdfast_plain "${words[i]#*=}" ;;
        -S*) _holdfast_plain "${words[i]#-S}" ;;
        *) continue ;;
        esac
        store=(-S "$plain")
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
