# awk -f interface.awk -v out=DIRECTORY TABLE, in the root of the sources: makes the public interface out of the library's headers.
#
# The table (cmake/interface.txt) says which functions, constants and macros are public, and which public header brings them. An
# installed header is the library's header of the same path without everything else: it keeps what the table names, and each type,
# macro and number that a public declaration uses. A comment stays where a declaration that it stands above stays. Below DIRECTORY
# are written
#
#   include/     the public headers, and the headers that they include
#   bppsa.map    the linker's script: the symbols that the shared library shows
#   names.txt    a line for each public name: public header, header, sort, name, documentation, separated by tabs
#   strays.txt   a line for each name in a comment of an installed header that is no public one: header, name
#
# A header is read as a list of units: a comment, a declaration, a macro, an include, a blank line. clang-format lays the sources
# out so that a unit begins in the first column of a line.

function fail(what) {
  print "interface: " what > "/dev/stderr"
  failed = 1
  exit 1
}

# ---- texts ----

# The text without comments and conditions, on one line; literals are emptied.
function code_of(text,    at, end) {
  gsub(/\n#[^\n]*/, "", text)
  gsub(/\n/, " ", text)
  while ((at = index(text, "/*")) > 0) {
    end = index(substr(text, at + 2), "*/")
    text = substr(text, 1, at - 1) " " (end > 0 ? substr(text, at + end + 3) : "")
  }
  gsub(/"([^"\\]|\\.)*"/, "\"\"", text)
  gsub(/'([^'\\]|\\.)*'/, "0", text)
  return text
}

# The comments of a text, one behind the other on one line.
function comments_of(text,    at, end, found) {
  gsub(/\n *[*] ?/, " ", text)
  gsub(/\n/, " ", text)
  while ((at = index(text, "/*")) > 0) {
    text = substr(text, at + 2)
    end = index(text, "*/")
    found = found " " substr(text, 1, end - 1)
    text = substr(text, end + 2)
  }
  gsub(/[ \t]+/, " ", found)
  gsub(/^ | $/, "", found)
  return found
}

function in_comment(text,    at, end) {
  while ((at = index(text, "/*")) > 0) {
    text = substr(text, at + 2)
    if ((end = index(text, "*/")) == 0) return 1
    text = substr(text, end + 2)
  }
  return 0
}

# Does the text end a declaration or a macro, or does the next line go on with it?
function is_whole(text,    code, depth) {
  if (text ~ /\\$/ || in_comment(text)) return 0
  if (text ~ /^#/) return 1
  code = code_of(text)
  if (code !~ /; *$/ && !(code ~ /^static inline/ && code ~ /} *$/)) return 0
  depth = gsub(/[{(]/, "", code)
  return depth == gsub(/[})]/, "", code)
}

# ---- headers ----

function next_line(file) {
  if ((getline got < file) <= 0) fail(file ": ends within a comment or a declaration")
  return got
}

function add_unit(file, kind, text) {
  units[file] += 1
  unit_kind[file, units[file]] = kind
  unit_text[file, units[file]] = text
}

function is_code(file, unit) {
  return unit_kind[file, unit] ~ /^(macro|declaration)$/
}

function read_unit(file, line,    text) {
  text = line
  if (line == "") {
    add_unit(file, "blank", "")
  } else if (line ~ /^\/\*/) {
    while (in_comment(text)) text = text "\n" next_line(file)
    add_unit(file, "comment", text)
  } else if (line ~ /^#ifdef __cplusplus/) {
    do {
      line = next_line(file)
      text = text "\n" line
    } while (line !~ /^#endif/)
    add_unit(file, "cplusplus", text)
  } else if (line ~ /^#(ifndef|define) [A-Z_0-9]+_H$/ || line ~ /^#endif/) {
    add_unit(file, "guard", line)
  } else if (line ~ /^#include/) {
    add_unit(file, "include", line)
  } else {
    while (!is_whole(text)) text = text "\n" next_line(file)
    add_unit(file, line ~ /^#define/ ? "macro" : "declaration", text)
  }
}

# Reads a header, and all that it includes.
function read_header(file,    line, status, i) {
  if (file in units) return
  units[file] = 0
  files[++file_count] = file
  while ((status = (getline line < file)) > 0) read_unit(file, line)
  close(file)
  if (status < 0) fail(file ": no such header")
  for (i = 1; i <= units[file]; ++i) {
    if (is_code(file, i)) find_names(file, i)
  }
  for (i = 1; i <= units[file]; ++i) {
    if (included(file, i) != "") read_header(included(file, i))
  }
}

# The header of the library that a unit includes, or "".
function included(file, unit,    text) {
  text = unit_text[file, unit]
  if (unit_kind[file, unit] != "include" || text !~ /"[a-z]+\//) return ""
  gsub(/^[^"]*"|".*$/, "", text)
  return text
}

function provide(file, unit, name) {
  unit_names[file, unit] = unit_names[file, unit] name " "
  declares[file, name] = 1
  if (!(name in provider) || (unit_code[file, unit] ~ /^typedef/ && !(name in has_typedef))) provider[name] = file
  if (unit_code[file, unit] ~ /^typedef/) has_typedef[name] = 1
}

# The last name of a declaration that ends with it: of a type, or of a constant.
function last_name(code) {
  sub(/ *(\[[^]]*\])* *; *$/, "", code)
  sub(/.*[^A-Za-z_0-9]/, "", code)
  return code
}

function find_constants(file, unit, code,    parts, count, i) {
  gsub(/^[^{]*\{|\}.*$/, "", code)
  count = split(code, parts, ",")
  for (i = 1; i <= count; ++i) {
    sub(/^ +/, "", parts[i])
    sub(/[ =].*$/, "", parts[i])
    if (parts[i] == "") continue
    is_value[parts[i]] = 1
    provide(file, unit, parts[i])
  }
}

# Finds what a declaration declares, and of which sort it is.
function find_names(file, unit,    code) {
  code = code_of(unit_text[file, unit])
  unit_code[file, unit] = code
  unit_names[file, unit] = " "
  unit_sort[file, unit] = "type"
  if (unit_kind[file, unit] == "macro") {
    unit_sort[file, unit] = "macro"
    sub(/^#define +/, "", code)
    sub(/[^A-Za-z_0-9].*/, "", code)
    provide(file, unit, code)
    return
  }
  if (code ~ /^(typedef )?enum[^;{]*\{/) find_constants(file, unit, code)
  if (code ~ /^typedef [^{;]*\(\*[a-z_0-9]+\)\(/) { # the type of a function
    gsub(/^[^(]*\(\*|\).*$/, "", code)
    provide(file, unit, code)
  } else if (code ~ /^typedef/) {
    provide(file, unit, last_name(code))
  } else if (code ~ /^(struct|enum|union) +[a-z_0-9]+ *[{;]/) {
    sub(/^[a-z]+ +/, "", code)
    sub(/[^A-Za-z_0-9].*/, "", code)
    provide(file, unit, code)
  } else if (code !~ /^enum/ && match(code, /bppsa_[a-z_0-9]+\(/)) {
    unit_sort[file, unit] = "function"
    provide(file, unit, substr(code, RSTART, RLENGTH - 1))
    is_function[substr(code, RSTART, RLENGTH - 1)] = 1
  } else if (code ~ /^extern/) {
    unit_sort[file, unit] = "constant"
    provide(file, unit, last_name(code))
    is_function[last_name(code)] = 1
  }
}

# ---- what is public ----

function keep_name(file, name, public,    i) {
  for (i = 1; i <= units[file]; ++i) {
    if (is_code(file, i) && index(unit_names[file, i], " " name " ")) keep(file, i, public)
  }
}

# Keeps a unit, and every type, macro and number that it uses. Functions are public by the table alone.
function keep(file, unit, public,    words, count, i, from) {
  if ((file, unit) in kept) return
  kept[file, unit] = public
  if (!(file in is_installed)) is_installed[file] = public
  count = split(unit_names[file, unit] unit_code[file, unit], words, /[^A-Za-z_0-9]+/)
  for (i = 1; i <= count; ++i) {
    if (words[i] in is_function || !(words[i] in provider)) continue
    from = (file SUBSEP words[i]) in declares ? file : provider[words[i]]
    keep_name(from, words[i], public)
  }
}

# Does a comment have something to say: does a declaration of its run stay? One that stands alone speaks for all that follows up to
# the next one that does.
function speaks(file, unit,    i, alone) {
  alone = unit_kind[file, unit + 1] == "blank"
  for (i = unit + 1; i <= units[file]; ++i) {
    if ((file, i) in kept) return 1
    if (!alone && unit_kind[file, i] ~ /^(blank|comment)$/) return 0
    if (alone && unit_kind[file, i] == "comment" && unit_kind[file, i + 1] == "blank") return 0
  }
  return 0
}

# ---- the installed headers ----

# Which public header brings an installed one: the table says it, or the first that needs something of it. From 1.
function rank_of(file) {
  return file in source_public ? public_rank[source_public[file]] : public_rank[is_installed[file]]
}

# Collects the includes of the installed header `to`. A header is replaced by what it includes where it is not installed, or where a
# later public header brings it.
function collect_includes(file, to,    i, other, line) {
  for (i = 1; i <= units[file]; ++i) {
    if (unit_kind[file, i] != "include") continue
    other = included(file, i)
    line = unit_text[file, i]
    if (other != "" && (!(other in is_installed) || rank_of(other) > rank_of(to))) {
      collect_includes(other, to)
    } else if (!(line in collected) && line !~ /jansson/) {
      collected[line] = 1
      if (other == "") system_lines = system_lines line "\n"
      else own_lines = own_lines line "\n"
    }
  }
}

function write_includes(file, path) {
  split("", collected)
  system_lines = own_lines = ""
  collect_includes(file, file)
  if (system_lines own_lines == "") return
  printf "\n%s%s%s", system_lines, system_lines != "" && own_lines != "" ? "\n" : "", own_lines > path
}

function write_header(file,    path, i, kind, blank, links, includes) {
  path = out "/include/" file
  printf "" > path
  for (i = 1; i <= units[file]; ++i) {
    if (((file, i) in kept) && unit_sort[file, i] ~ /function|constant/) links = 1
  }
  for (i = 1; i <= units[file]; ++i) {
    kind = unit_kind[file, i]
    if (kind == "blank") {
      blank = 1
    } else if (kind == "include") {
      if (!includes++) write_includes(file, path)
      blank = 0
    } else if (kind == "guard" || (kind == "cplusplus" && links) || (kind == "comment" && (i == 1 || speaks(file, i))) ||
               (file, i) in kept) {
      if (blank) print "" > path
      blank = 0
      print unit_text[file, i] > path
    }
  }
  close(path)
}

function write_public(public,    path, guard, s, first) {
  path = out "/include/" public
  guard = toupper(public)
  gsub(/\./, "_", guard)
  print "/* " about[public] " */\n#ifndef " guard "\n#define " guard > path
  if (public != publics[1]) print "\n#include \"" publics[1] "\"" > path
  for (s = 1; s <= source_count; ++s) {
    if (source_public[sources[s]] != public) continue
    if (heading_of[sources[s]] != "") print "\n/* " heading_of[sources[s]] " */" > path
    print "#include \"" sources[s] "\"" > path
  }
  if (public == publics[1]) print "\n#include \"bppsa_version.h\"" > path
  print "\n#endif" > path
  close(path)
}

# ---- the lists ----

# The comment above a declaration or above the run that it belongs to, and those beside or within it.
function documentation(file, unit,    i) {
  for (i = unit - 1; i >= 1 && is_code(file, i); --i) {
  }
  return (unit_kind[file, i] == "comment" ? comments_of(unit_text[file, i]) " " : "") comments_of(unit_text[file, unit])
}

# Lists the names of the library in a text that are not public.
function list_strays(file, text, list,    words, count, i) {
  count = split(text, words, /[^A-Za-z_0-9]+/)
  for (i = 1; i <= count; ++i) {
    if (words[i] ~ /^(bppsa|BPPSA)_[A-Za-z]/ && !(words[i] in is_public) && !((words[i] ".h") in about)) {
      print file "\t" words[i] > list
    }
  }
}

function write_strays(    file, f, i, list) {
  list = out "/strays.txt"
  printf "" > list
  for (f = 1; f <= file_count; ++f) {
    file = files[f]
    for (i = 1; i <= units[file]; ++i) {
      if ((file, i) in kept || (unit_kind[file, i] == "comment" && (i == 1 || speaks(file, i)))) {
        list_strays(file, comments_of(unit_text[file, i]), list)
      }
    }
  }
  close(list)
}

function write_lists(    map, list, file, f, i, count, part, k, sort, doc) {
  map = out "/bppsa.map"
  list = out "/names.txt"
  print "{\n  global:" > map
  printf "" > list
  for (f = 1; f <= file_count; ++f) {
    file = files[f]
    for (i = 1; i <= units[file]; ++i) {
      if (!((file, i) in kept)) continue
      doc = documentation(file, i)
      sort = unit_sort[file, i]
      count = split(unit_names[file, i], part, " ")
      for (k = 1; k <= count; ++k) {
        is_public[part[k]] = 1
        if (sort == "function" && unit_code[file, i] ~ /^static/) sort = "inline"
        if (sort ~ /function|constant/) print "    " part[k] ";" > map
        print kept[file, i] "\t" file "\t" (part[k] in is_value ? "value" : sort) "\t" part[k] "\t" doc > list
      }
    }
  }
  print "  local:\n    *;\n};" > map
  close(map)
  close(list)
}

# ---- the table ----

/^#/ || /^$/ { next }
/^[a-z_]+\.h: / {
  publics[++public_count] = substr($1, 1, length($1) - 1)
  public_rank[publics[public_count]] = public_count
  about[publics[public_count]] = substr($0, index($0, ": ") + 2)
  next
}
/^  # / {
  heading = substr($0, 5)
  next
}
{
  for (i = 1; i <= NF; ++i) {
    if ($i ~ /\//) {
      source = $i
      if (source in source_public) fail(FILENAME ":" FNR ": " source " is listed twice")
      sources[++source_count] = source
      source_public[source] = publics[public_count]
      heading_of[source] = heading
      heading = ""
    } else {
      if ($i in table_of) fail(FILENAME ":" FNR ": " $i " is listed twice")
      table_of[$i] = source
      names[++name_count] = $i
    }
  }
}

END {
  if (failed) exit 1
  for (s = 1; s <= source_count; ++s) read_header(sources[s])
  for (n = 1; n <= name_count; ++n) {
    file = table_of[names[n]]
    if (!((file, names[n]) in declares)) fail(file " does not declare " names[n] ", which the table names")
    keep_name(file, names[n], source_public[file])
  }
  for (s = 1; s <= source_count; ++s) {
    if (!(sources[s] in is_installed)) fail(sources[s] ": the table names nothing of it")
  }
  for (file in is_installed) {
    folder = file
    sub(/\/[^\/]*$/, "", folder)
    if (!(folder in made) && system("mkdir -p '" out "/include/" folder "'") != 0) fail(out ": cannot be written")
    made[folder] = 1
    write_header(file)
  }
  for (p = 1; p <= public_count; ++p) write_public(publics[p])
  write_lists()
  write_strays()
}
