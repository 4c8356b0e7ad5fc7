# Completion of holdfast for fish: commands, options, and the keys that are in use.

set -l commands run once acquire renew enter release ls show watch break forget prune guard \
    stores doctor bench help

# Of the store that this command line names, or else the environment.
function __holdfast_keys
    set -l words (commandline -opc)[2..-1]
    set -l store
    argparse -i S/store= -- $words 2>/dev/null
    set -q _flag_store; and set store -S $_flag_store
    timeout 2 holdfast $store ls --all --json 2>/dev/null |
        string replace -rf '^\{"key":"((?:[^"\\\\]|\\\\.)*)",.*' '$1' |
        string replace -ra '\\\\(.)' '$1'
end

function __holdfast_in
    __fish_seen_subcommand_from $argv; and not contains -- -- (commandline -opc)
end

# Behind "--" it is somebody else's command line.
function __holdfast_other
    set -l words (commandline -opc)
    set -l at (contains -i -- -- $words); or return
    complete -C (string join ' ' -- (string escape -- $words[(math $at + 1)..-1]) (commandline -ct))
end

complete -c holdfast -f
complete -c holdfast -s S -l store -x -a 'file: @' -d 'The store'
complete -c holdfast -s h -l help -d 'Say what it takes'
set -l none "not __fish_seen_subcommand_from $commands"
complete -c holdfast -s V -l version -d 'The version'
complete -c holdfast -n "__holdfast_in run" -s F -l no-fork -d 'Become the command'
complete -c holdfast -n $none -a run -d 'Run a command while holding keys'
complete -c holdfast -n $none -a once -d 'Run a command once per event, remembered'
complete -c holdfast -n $none -a acquire -d 'Take keys for a time, for scripts'
complete -c holdfast -n $none -a renew -d 'Extend a grant'
complete -c holdfast -n $none -a enter -d 'Show a token to the guard of the data'
complete -c holdfast -n $none -a release -d 'Give a grant back'
complete -c holdfast -n $none -a ls -d 'List what is held or waited for'
complete -c holdfast -n $none -a show -d 'Show one key: holders and waiters'
complete -c holdfast -n $none -a watch -d 'Show changes as they happen'
complete -c holdfast -n $none -a break -d "End somebody's grant"
complete -c holdfast -n $none -a forget -d 'Let an event that is done run again'
complete -c holdfast -n $none -a prune -d 'Delete what nobody has used for long'
complete -c holdfast -n $none -a guard -d 'Print what makes a database refuse a stale writer'
complete -c holdfast -n $none -a stores -d 'Name the kinds of store there are'
complete -c holdfast -n $none -a doctor -d 'Prove a store before it is trusted'
complete -c holdfast -n $none -a bench -d 'Measure a store against flock'
complete -c holdfast -n $none -a help -d 'Say what a command takes'

set -l keyed run once acquire renew enter release ls show watch break forget
complete -c holdfast -n "__holdfast_in $keyed" -a '(__holdfast_keys)' -d Key
complete -c holdfast -n '__fish_seen_subcommand_from run once' -a '(__holdfast_other)'

set -l on "__holdfast_in run once acquire"
complete -c holdfast -n $on -s n -l nonblock -d "Don't wait"
complete -c holdfast -n $on -s w -l wait -x -d 'Wait for so long'
complete -c holdfast -n $on -s E -l conflict-exit-code -x -d 'Status if not obtained'
complete -c holdfast -n $on -l owner -x -d 'Who holds'
complete -c holdfast -n $on -s v -l verbose -d 'Say how long it took'
complete -c holdfast -n $on -s q -l quiet -d 'No line if not obtained'
set -l on "__holdfast_in run acquire"
complete -c holdfast -n $on -s s -l shared -d 'Together with other shared holders'
complete -c holdfast -n $on -s x -l exclusive -d Alone
complete -c holdfast -n $on -l limit -x -d 'Up to so many together'
complete -c holdfast -n "__holdfast_in run" -l at-least -x -d 'Keep the key taken for so long'
complete -c holdfast -n "__holdfast_in run once acquire renew" -l lease -x -d 'Hold by time'
set -l on "__holdfast_in run once"
complete -c holdfast -n $on -l max-hold -x -d 'Stop the command after so long'
complete -c holdfast -n $on -l on-lost -x -a 'term kill ignore' -d 'When the lock is lost'
complete -c holdfast -n $on -s o -l close -d "Don't hand the hold on to the command"
complete -c holdfast -n "__holdfast_in once" -l keep -x -a forever -d 'Remember it for so long'
complete -c holdfast -n "__holdfast_in once" -l at-most-once -d 'Mark it before it runs'
complete -c holdfast -n "__holdfast_in renew enter release break" -l token -x -d 'Which grant'
complete -c holdfast -n "__holdfast_in prune" -l idle -x -d 'Unused for so long'
complete -c holdfast -n "__holdfast_in ls" -s a -l all -d 'Free keys too'
set -l on "__holdfast_in acquire renew ls show watch prune stores doctor bench"
complete -c holdfast -n $on -l json -d 'A document per line'
complete -c holdfast -n "__holdfast_in guard" -d Kind \
    -a 'postgres mariadb sqlite firestore redis mongodb'
complete -c holdfast -n "__holdfast_in guard" -l key-column -x -d 'The column that says the key'
complete -c holdfast -n "__holdfast_in guard" -l key-prefix -x -d 'What a key begins with'
complete -c holdfast -n "__holdfast_in guard" -l schema -x -d 'Of the table'
complete -c holdfast -n "__holdfast_in guard" -l locks -x -d 'The table of the locks'
complete -c holdfast -n "__holdfast_in guard" -l locks-schema -x -d 'Of the locks'
complete -c holdfast -n "__holdfast_in guard" -l elsewhere -d 'The locks are in another store'
complete -c holdfast -n "__holdfast_in guard" -l undo -d 'Print the removal'
complete -c holdfast -n "__holdfast_in guard" -l lock -x -d 'Collection of the locks'
complete -c holdfast -n "__holdfast_in guard" -l data -x -d 'What they guard'
complete -c holdfast -n "__holdfast_in guard" -l owner -x -a auth.uid -d 'Who a user is'
complete -c holdfast -n "__holdfast_in guard" -l token-field -x -d 'Of a document'
complete -c holdfast -n "__holdfast_in guard" -l max-lease -x -d 'The longest lease'
