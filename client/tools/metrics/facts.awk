# Makes facts.c (-v out=FILE) from the table in README.md: | `family` | type, unit | labels | kind `name` | help |.
# A row without a family is another series of the one above.
BEGIN {
    FS = "|"
    print "/* Made of client/tools/metrics/README.md by facts.awk. */\n#include \"client/tools/metrics/table.h\"\n" > out
    print "const struct metric_fact metric_facts[] = {" > out
}

function trimmed(text) {
    gsub(/^ +| +$|`/, "", text)
    return text
}

/^\| (`sluice_[a-z0-9_]+`)? \| / {
    if (NF != 7 || $0 ~ /["\\]/) {
        print FILENAME ":" FNR ": malformed row: " $0 > "/dev/stderr"
        exit failed = 1
    }
    if (trimmed($2) != "") {
        family = trimmed($2)
        split(trimmed($3), type, /, /)
    }
    labels = trimmed($4)
    gsub(/, /, ",", labels)
    split(trimmed($5), where, / /)
    printf "    {\"%s\", \"%s\", \"%s\", \"%s\", \"%s\", \"%s\",\n     \"%s\"},\n", where[1], where[2], type[1], type[2], family, labels, trimmed($6) > out
}

END {
    if (failed) exit 1 # the written file ends in the middle of the array
    print "};\nconst size_t metric_fact_count = sizeof(metric_facts) / sizeof(*metric_facts);" > out
}
