/* Writes completions: a case for every command, with its options, their choices, and which options take files. */
#include <string.h>

#include "cli/command.h"
#include "networks/network_kinds.h"
#include "shell/shell.h"

const char *bppsa_shell_verb(int index) {
  const bppsa_command *const *commands = bppsa_commands();
  for (int i = 0; commands[i] != NULL; ++i) {
    if ((i == 0 || strcmp(commands[i]->verb, commands[i - 1]->verb) != 0) && index-- == 0) {
      return commands[i]->verb;
    }
  }
  return NULL;
}

/* Writes the pattern that matches a command's words: 'train rnn', 'train '*.json|'train '*.onnx, 'doctor '*. */
static void write_pattern(FILE *out, const bppsa_command *command) {
  const bool file = command->object != NULL && strcmp(command->object, BPPSA_NETWORK_FILE) == 0;
  if (file) {
    fprintf(out, "'%s '*.json|'%s '*.onnx", command->verb, command->verb);
  } else if (command->object == NULL) {
    fprintf(out, "'%s '*", command->verb);
  } else {
    fprintf(out, "'%s %s'", command->verb, command->object);
  }
}

static void write_objects(FILE *out, const char *verb) {
  for (const bppsa_command *const *command = bppsa_commands(); *command != NULL; ++command) {
    if (strcmp((*command)->verb, verb) == 0 && (*command)->object != NULL &&
        strcmp((*command)->object, BPPSA_NETWORK_FILE) != 0) {
      fprintf(out, "%s ", (*command)->object);
    }
  }
}

static void write_verbs(FILE *out) {
  const char *verb;
  for (int i = 0; (verb = bppsa_shell_verb(i)) != NULL; ++i) {
    fprintf(out, "%s ", verb);
  }
  fputs("--help --version", out);
}

static void write_choices(FILE *out, const bppsa_option_info *info) {
  for (int32_t i = 0; bppsa_option_choice(info, i) != NULL; ++i) {
    fprintf(out, "%s%s", i == 0 ? "" : " ", bppsa_option_choice(info, i));
  }
}

static bool takes_value(const bppsa_option_info *info) {
  return info->kind != BPPSA_FLAG;
}

static bool has_choices(const bppsa_option_info *info) {
  return info->kind == BPPSA_CHOICE;
}

/* ---- bash ---- */

static void write_bash_command(FILE *out, const bppsa_command *command) {
  fputs("  ", out);
  write_pattern(out, command);
  fputs(")\n    options='", out);
  for (const bppsa_option_use *use = command->uses; use->option != BPPSA_OPTION_COUNT; ++use) {
    fprintf(out, "%s ", bppsa_option_get(use->option)->name);
  }
  fputs("'\n    case \"$before\" in\n", out);
  for (const bppsa_option_use *use = command->uses; use->option != BPPSA_OPTION_COUNT; ++use) {
    const bppsa_option_info *info = bppsa_option_of(use);
    if (takes_value(info)) {
      fprintf(out, "    %s) value=1 choices='", info->name);
      write_choices(out, info);
      fputs("' ;;\n", out);
    }
  }
  fputs("    esac\n    ;;\n", out);
}

void bppsa_shell_bash(FILE *out) {
  const char *verb;
  fputs("# bash completion of bppsa, written from its tables of commands and options\n"
        "_bppsa() {\n"
        "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} options='' choices='' value=''\n"
        "  COMPREPLY=()\n"
        "  if [ \"$word\" = = ]; then # --option=, which bash cuts in pieces\n"
        "    word=''\n"
        "  elif [ \"$before\" = = ]; then\n"
        "    before=${COMP_WORDS[COMP_CWORD - 2]}\n"
        "  fi\n"
        "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
        "    mapfile -t COMPREPLY < <(compgen -W '",
        out);
  write_verbs(out);
  fputs("' -- \"$word\")\n    return\n  fi\n"
        "  if [ \"$COMP_CWORD\" -eq 2 ]; then\n    case \"${COMP_WORDS[1]}\" in\n",
        out);
  for (int i = 0; (verb = bppsa_shell_verb(i)) != NULL; ++i) {
    fprintf(out, "    %s) choices='", verb);
    write_objects(out, verb);
    fputs("' ;;\n", out);
  }
  fputs("    esac\n"
        "    if [ -n \"$choices\" ]; then\n"
        "      mapfile -t COMPREPLY < <(compgen -W \"$choices --help\" -- \"$word\"; compgen -f -X '!*.json' -- \"$word\";\n"
        "        compgen -f -X '!*.onnx' -- \"$word\")\n"
        "      return\n"
        "    fi\n"
        "  fi\n"
        "  case \"${COMP_WORDS[1]} ${COMP_WORDS[2]}\" in\n",
        out);
  for (const bppsa_command *const *command = bppsa_commands(); *command != NULL; ++command) {
    write_bash_command(out, *command);
  }
  fputs("  esac\n"
        "  if [ -n \"$choices\" ]; then\n"
        "    mapfile -t COMPREPLY < <(compgen -W \"$choices\" -- \"$word\")\n"
        "  elif [ -n \"$value\" ]; then\n"
        "    mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n"
        "  else\n"
        "    mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$word\")\n"
        "  fi\n"
        "}\n"
        "complete -o filenames -F _bppsa bppsa\n",
        out);
}

/* ---- zsh ---- */

/* Writes text of a specification for _arguments, between single quotes. */
static void write_zsh_text(FILE *out, const char *text) {
  for (; *text != '\0'; ++text) {
    if (strchr("[]:\\", *text) != NULL) {
      fputc('\\', out);
    }
    fputs(*text == '\'' ? "'\\''" : (const char[]){*text, '\0'}, out);
  }
}

static void write_zsh_option(FILE *out, const bppsa_option_use *use) {
  const bppsa_option_info *info = bppsa_option_of(use);
  const char *metavar = use->metavar != NULL ? use->metavar : info->metavar;
  fprintf(out, " \\\n      '%s%s[", info->name, takes_value(info) ? "=" : "");
  write_zsh_text(out, use->help != NULL ? use->help : info->help);
  fputs("]", out);
  if (takes_value(info)) {
    fputs(":", out);
    write_zsh_text(out, metavar != NULL ? metavar : "value");
    fputs(":", out);
    if (has_choices(info)) {
      fputs("(", out);
      write_choices(out, info);
      fputs(")", out);
    } else if (info->kind == BPPSA_TEXT) {
      fputs("_files", out);
    }
  }
  fputs("'", out);
}

void bppsa_shell_zsh(FILE *out) {
  const char *verb;
  fputs("#compdef bppsa\n"
        "# zsh completion of bppsa, written from its tables of commands and options\n"
        "_bppsa() {\n"
        ""
        "  if (( CURRENT == 2 )); then\n    compadd -- ",
        out);
  write_verbs(out);
  fputs("\n    return\n  fi\n  if (( CURRENT == 3 )); then\n    case \"$words[2]\" in\n", out);
  for (int i = 0; (verb = bppsa_shell_verb(i)) != NULL; ++i) {
    const bppsa_command *const *command = bppsa_commands();
    while (strcmp((*command)->verb, verb) != 0) {
      ++command;
    }
    if ((*command)->object != NULL) {
      fprintf(out, "    %s) compadd -- ", verb);
      write_objects(out, verb);
      fputs("--help; _files -g '*.(json|onnx)'; return ;;\n", out);
    }
  }
  fputs("    esac\n  fi\n  case \"$words[2] $words[3]\" in\n", out);
  for (const bppsa_command *const *command = bppsa_commands(); *command != NULL; ++command) {
    fputs("  ", out);
    write_pattern(out, *command);
    fprintf(out, ")\n    words=(bppsa \"${(@)words[%d,-1]}\")\n    (( CURRENT -= %d ))\n    _arguments",
            (*command)->object != NULL ? 4 : 3, (*command)->object != NULL ? 2 : 1);
    for (const bppsa_option_use *use = (*command)->uses; use->option != BPPSA_OPTION_COUNT; ++use) {
      write_zsh_option(out, use);
    }
    fputs("\n    ;;\n", out);
  }
  fputs("  esac\n}\n_bppsa \"$@\"\n", out);
}
