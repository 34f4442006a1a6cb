# Reads the prototypes that gcc -aux-info writes, and prints a program that calls every public function that returns a status, and
# every one that releases something, with NULL for every pointer, in a process of its own: tests/headers/null_calls.h has the loop.
# A function that begins to take part is found by itself.
BEGIN {
  print "#include \"tests/headers/checked.h\""
  print "#include \"tests/headers/null_calls.h\""
}
{
  if (!match($0, /\*\/ extern (bppsa_status|void) bppsa_[a-z0-9_]+ \(/)) next
  file = $2
  text = substr($0, RSTART + 10)
  is_status = text ~ /^bppsa_status /
  sub(/^(bppsa_status|void) /, "", text)
  name = text
  sub(/ .*/, "", name)
  sub(/^[a-z0-9_]+ \(/, "", text)
  sub(/\);.*$/, "", text)
  if (text ~ /\.\.\./ || text == "void" || name in seen) next
  if (!is_status && name !~ /_(destroy|free|abort|close)$/) next
  seen[name] = 1
  depth = 0
  count = 0
  part = ""
  for (i = 1; i <= length(text); ++i) {
    c = substr(text, i, 1)
    depth += c == "(" || c == "["
    depth -= c == ")" || c == "]"
    if (c == "," && depth == 0) { parts[++count] = part; part = "" } else part = part c
  }
  parts[++count] = part
  arguments = ""
  pointers = 0
  for (i = 1; i <= count; ++i) {
    type = parts[i]
    gsub(/^ +| +$/, "", type)
    if (type ~ /\*/ || type ~ /_(body|create)$/) { value = "NULL"; ++pointers }
    else if (type ~ /^(const )?(u?int[0-9]*_t|int|size_t|uint64_t|long|unsigned int)$/) value = "(" type ")n"
    else if (type ~ /^(double|float|_Bool)$/) value = "(" type ")(n != 0)"
    else value = "(" type "){0}"
    arguments = arguments (i > 1 ? ", " : "") value
  }
  if (pointers == 0) next
  calls[++total] = name
  status[total] = is_status
  text_of[total] = arguments
}
END {
  for (i = 1; i <= total; ++i) {
    printf "static bppsa_status call_%s(int64_t n) {\n  (void)n;\n", calls[i]
    if (status[i]) printf "  return %s(%s);\n}\n", calls[i], text_of[i]
    else printf "  %s(%s);\n  return BPPSA_OK;\n}\n", calls[i], text_of[i]
  }
  print "const null_call null_calls[] = {"
  for (i = 1; i <= total; ++i) printf "    {\"%s\", %s, call_%s},\n", calls[i], status[i] ? "true" : "false", calls[i]
  print "    {0}};"
}
