# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
#
# bash completion for cella. The words are those of "cella __options"; a test compares them.

_cella_verbs="run create start exec cp ps inspect logs stats reach update pause resume stop rm call plugin config policy snapshot restore fork image audit doctor gc version help"

_cella_options() {
    case $1 in
    run) echo "--backend --class --image --kernel --policy --memory --cpus --pids --disk --io-read --io-write --timeout --idle --env --mount --user --workdir --name --hostname --read-only --interactive --tty --rm --detach --timings --json --config --help" ;;
    create) echo "--backend --class --image --kernel --policy --memory --cpus --pids --disk --io-read --io-write --timeout --idle --env --mount --user --workdir --name --hostname --read-only --timings --json --config --help" ;;
    start) echo "--json --config --help" ;;
    exec) echo "--env --user --workdir --interactive --tty --json --timeout --config --help" ;;
    cp) echo "--config --help" ;;
    ps) echo "--all --json --config --help" ;;
    inspect) echo "--config --help" ;;
    logs) echo "--follow --config --help" ;;
    stats) echo "--stream --json --config --help" ;;
    reach) echo "--policy --backend --class --image --kernel --timeout --json --config --help" ;;
    update) echo "--memory --cpus --pids --io-read --io-write --json --config --help" ;;
    pause) echo "--config --help" ;;
    resume) echo "--config --help" ;;
    stop) echo "--time --kill --json --config --help" ;;
    rm) echo "--force --json --config --help" ;;
    call) echo "--config --help" ;;
    plugin) echo "--json --help" ;;
    config) echo "--json --config --help" ;;
    policy) echo "--if-match --json --config --help" ;;
    snapshot) echo "--json --config --help" ;;
    restore) echo "--class --policy --timeout --idle --name --hostname --timings --json --config --help" ;;
    fork) echo "--count --spares --name --policy --json --config --help" ;;
    image) echo "--packages --suite --mirror --package --from --file --aside --check --json --config --help" ;;
    audit) echo "--lines --follow --kind --cell --json --config --help" ;;
    doctor) echo "--json --config --help" ;;
    gc) echo "--check --json --config --help" ;;
    version) echo "--json --help" ;;
    help) echo "--help" ;;
    esac
}

_cella_cells() {
    cella ps --all 2>/dev/null | awk 'NR > 1 { print $2 }'
}

_cella_images() {
    cella image ls 2>/dev/null | awk 'NR > 1 && $1 != "-" { print $1 }'
}

_cella_snapshots() {
    cella snapshot ls 2>/dev/null | awk 'NR > 1 { print $2 == "-" ? $1 : $2 }'
}

_cella() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} verb=${COMP_WORDS[1]}
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "$_cella_verbs" -- "$cur")
        return
    fi
    case $prev in
    --policy) mapfile -t COMPREPLY < <(compgen -W "none deny" -f -- "$cur"); return ;;
    --image) mapfile -t COMPREPLY < <(compgen -W "host dir: tar: $(_cella_images)" -- "$cur"); return ;;
    --config | --mount | -v | --from | --file) mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
    esac
    if [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_cella_options "$verb")" -- "$cur")
        return
    fi
    case $verb in
    start | exec | inspect | logs | stats | reach | update | pause | resume | stop | rm | call | fork)
        mapfile -t COMPREPLY < <(compgen -W "$(_cella_cells)" -- "$cur") ;;
    cp) mapfile -t COMPREPLY < <(compgen -W "$(_cella_cells | sed 's/$/:/')" -f -- "$cur") ;;
    snapshot)
        case $prev in
        rm | verify) mapfile -t COMPREPLY < <(compgen -W "$(_cella_snapshots)" -- "$cur") ;;
        *) mapfile -t COMPREPLY < <(compgen -W "ls rm verify $(_cella_cells)" -- "$cur") ;;
        esac ;;
    restore) mapfile -t COMPREPLY < <(compgen -W "$(_cella_snapshots)" -- "$cur") ;;
    image)
        case $COMP_CWORD:$prev in
        2:*) mapfile -t COMPREPLY < <(compgen -W "ls build import rm verify disk gc kernel" -- "$cur") ;;
        3:rm | 3:verify | 3:disk | 3:build | 3:import) mapfile -t COMPREPLY < <(compgen -W "$(_cella_images)" -- "$cur") ;;
        3:kernel) mapfile -t COMPREPLY < <(compgen -W "ls fetch use rm" -- "$cur") ;;
        4:*) mapfile -t COMPREPLY < <(compgen -W "dir: tar:" -f -- "$cur") ;;
        esac ;;
    audit) mapfile -t COMPREPLY < <(compgen -W "tail show verify" -- "$cur") ;;
    policy)
        case $COMP_CWORD:$prev in
        2:*) mapfile -t COMPREPLY < <(compgen -W "check show set phase" -- "$cur") ;;
        3:show | 3:set | 3:phase) mapfile -t COMPREPLY < <(compgen -W "$(_cella_cells)" -- "$cur") ;;
        *) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
        esac ;;
    config) mapfile -t COMPREPLY < <(compgen -W "check" -f -- "$cur") ;;
    plugin) mapfile -t COMPREPLY < <(compgen -W "ls inspect" -f -- "$cur") ;;
    help) mapfile -t COMPREPLY < <(compgen -W "$_cella_verbs" -- "$cur") ;;
    esac
}

complete -o default -F _cella cella
