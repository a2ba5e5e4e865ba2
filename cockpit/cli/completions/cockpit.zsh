#compdef cockpit
# Completion for zsh, after compinit: source <(cockpit completion zsh)
_cockpit() {
    local -a found
    found=("${(@f)$(cockpit completion --words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -z "${found[1]}" ]]; then
        _files
        return
    fi
    found=("${(@)found//:/\\:}")
    found=("${(@)found/ /:}")
    _describe cockpit found
}
compdef _cockpit cockpit
