# Completion for fish: cockpit completion fish | source
function __cockpit_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l found (cockpit completion --words -- $words[2..] 2>/dev/null | string replace ' ' \t)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c cockpit -f -a '(__cockpit_complete)'
