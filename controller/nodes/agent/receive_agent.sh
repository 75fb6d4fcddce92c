# The controller sends this text to a host without Python, after the functions of the program corral-agent
# (deploy/binary/launcher.sh) and the lines WORD=… and HOME_DIRECTORY=…. It takes the archive with the agent from stdin
# if the host does not have it, and then runs the agent in place of this shell. agent/host/bootstrap.py does the same on
# a host with Python.
answer() { printf '\n%s ["%s", "%s"]\n' "$WORD" "$1" "$(printf %s "$2" | tr -d '"\\\000-\037')"; }

fail() {
    answer failed "$1"
    exit 1
}

write_archive() {
    answer wants ''
    head -c "$BYTES" >"$1"
}

before_start() { answer ready "$HOME_DIRECTORY"; }

umask 077
HOME_DIRECTORY=${HOME_DIRECTORY:-$HOME/.corral} BASE=$HOME_DIRECTORY/agents
start -
