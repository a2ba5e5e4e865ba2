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
# Of a file in fpath, this is the function itself at its first call.
if [[ $funcstack[1] == _cockpit ]]; then
    _cockpit "$@"
else
    compdef _cockpit cockpit
fi
