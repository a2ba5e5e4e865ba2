# Completion for bash: source <(cockpit completion bash)
_cockpit() {
    # Names of runs are data: nothing of them is expanded.
    mapfile -t COMPREPLY < <(
        cockpit completion --words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -d " " -f 1
    )
}
complete -o default -F _cockpit cockpit
