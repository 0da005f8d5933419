# Prints the annotation by which Artifact Hub shows what a release changes: the section [version] of CHANGELOG.md.
function told() {
    if (text != "") {
        gsub(/\\/, "\\\\", text)
        gsub(/"/, "\\\"", text)
        gsub(/\*\*/, "", text)
        printf "    - kind: %s\n      description: \"%s\"\n", kind, text
    }
    text = ""
}
BEGIN { print "  artifacthub.io/changes: |" }
/^## \[/ { told(); wanted = index($0, "## [" version "]") == 1; next }
!wanted { next }
/^### / { told(); kind = tolower($2); next }
/^- / { told(); text = substr($0, 3); next }
/^  / && text != "" { sub(/^ +/, ""); text = text " " $0; next }
{ told() }
END { told() }
