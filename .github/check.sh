# The step "Check" of action.yml: PROTOCOL and ARGUMENTS are checked; page and file of a violation go to the folder WITNESSES.
set -uo pipefail
mapfile -t arguments < <(xargs --no-run-if-empty printf '%s\n' <<< "$ARGUMENTS")  # words as a shell has them, evaluated by none
mkdir -p "$WITNESSES"
xccl-emu check "$PROTOCOL" "${arguments[@]}" --out "$WITNESSES/witness.json" --html "$WITNESSES/witness.html" --sarif "$WITNESSES/check.sarif" | tee "$WITNESSES/check.txt"
code=${PIPESTATUS[0]}
echo "sarif=$WITNESSES/check.sarif" >> "${GITHUB_OUTPUT:-/dev/null}"
{
    echo "### xccl-emu check $PROTOCOL $ARGUMENTS"
    if [ -e "$WITNESSES/witness.json" ]; then
        echo "The run is in the artifact \`xccl-emu-witness\` as a page, and in this line, for \`xccl-emu show\`:"
        printf '```\n%s\n```\n' "$(python -c 'import sys; from xccl_emu.check.witness.replay_file import Witness; print(Witness.load(sys.argv[1]).to_line())' "$WITNESSES/witness.json")"
    elif [ "$code" = 0 ]; then
        echo "Nothing is wrong."
    else
        echo "No answer: exit code $code."
    fi
} >> "$GITHUB_STEP_SUMMARY"
exit "$code"
