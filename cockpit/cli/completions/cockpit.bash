# Completion for bash: source <(cockpit completion bash)
_cockpit() {
    local IFS=$'\n'
    COMPREPLY=($(cockpit completion --words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -d " " -f 1))
    COMPREPLY=($(compgen -W '${COMPREPLY[*]}' -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _cockpit cockpit
