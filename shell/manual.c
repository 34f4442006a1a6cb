/* Writes manual pages, in roff's macros of man(7). */
#include <string.h>

#include "bppsa_version.h"
#include "cli/command.h"
#include "shell/shell.h"

/* Writes a text for roff: its own characters are escaped, and no line begins with a dot or a quote. */
static void write_text(FILE *out, const char *text) {
  bool begins = true;
  for (; *text != '\0'; ++text) {
    if (begins && (*text == '.' || *text == '\'')) {
      fputs("\\&", out);
    }
    begins = *text == '\n';
    if (*text == '\\') {
      fputs("\\e", out);
    } else if (*text == '-') {
      fputs("\\-", out);
    } else {
      fputc(*text, out);
    }
  }
}

static void write_title(FILE *out, const char *verb) {
  fprintf(out, ".TH \"BPPSA%s%s\" \"1\" \"\" \"bppsa %s\" \"User Commands\"\n.SH NAME\nbppsa%s%s \\- ", verb != NULL ? "\\-" : "",
          verb != NULL ? verb : "", BPPSA_VERSION, verb != NULL ? "\\-" : "", verb != NULL ? verb : "");
}

static void write_option(FILE *out, const bppsa_option_use *use) {
  const bppsa_option_info *info = bppsa_option_of(use);
  const char *metavar = use->metavar != NULL ? use->metavar : info->metavar, *fallback = bppsa_option_fallback(use),
             *otherwise = fallback != NULL    ? fallback
                          : use->help == NULL ? info->otherwise
                                              : NULL;
  fputs(".TP\n.B ", out);
  write_text(out, info->name);
  if (metavar != NULL) {
    fputs(" \\fI", out);
    write_text(out, metavar);
    fputs("\\fR", out);
  }
  for (int32_t i = 0; bppsa_option_choice(info, i) != NULL; ++i) {
    fputs(i == 0 ? " \\fR" : "|", out);
    write_text(out, bppsa_option_choice(info, i));
  }
  fputs("\n", out);
  write_text(out, use->help != NULL ? use->help : info->help);
  if (use->required) {
    fputs(" (required)", out);
  } else if (otherwise != NULL) {
    fputs(" [", out);
    write_text(out, otherwise);
    fputs("]", out);
  }
  fputs("\n", out);
}

static void write_command(FILE *out, const bppsa_command *command) {
  char name[BPPSA_COMMAND_NAME];
  fputs(".SS bppsa ", out);
  write_text(out, bppsa_command_name(command, name, sizeof name));
  fputs("\n", out);
  write_text(out, command->summary);
  fputs(".\n", out);
  for (const bppsa_option_use *use = command->uses; use->option != BPPSA_OPTION_COUNT; ++use) {
    write_option(out, use);
  }
  fputs(".PP\n", out);
  if (command->notes != NULL) {
    fputs(".nf\n", out);
    write_text(out, command->notes);
    fputs(".fi\n.PP\n", out);
  }
  fputs("Example:\n.PP\n.RS\nbppsa ", out);
  write_text(out, command->example);
  fputs("\n.RE\n", out);
}

static void write_program(FILE *out) {
  char name[BPPSA_COMMAND_NAME];
  const char *verb;
  write_title(out, NULL);
  fputs("trains networks with back\\-propagation as a parallel scan\n"
        ".SH SYNOPSIS\n.B bppsa\n\\fICOMMAND\\fR [\\fIOPTION\\fR]...\n.SH COMMANDS\n",
        out);
  for (const bppsa_command *const *command = bppsa_commands(); *command != NULL; ++command) {
    fputs(".TP\n.B bppsa ", out);
    write_text(out, bppsa_command_name(*command, name, sizeof name));
    fputs("\n", out);
    write_text(out, (*command)->summary);
    fputs(".\n", out);
  }
  fputs(".SH OPTIONS\n.TP\n.B \\-\\-help\nhelp; after a command, its own\n.TP\n.B \\-\\-version\nversion and commit\n"
        ".SH EXIT STATUS\n0 good; 2 the request was wrong; 1 it failed while running.\n.SH SEE ALSO\n",
        out);
  for (int i = 0; (verb = bppsa_shell_verb(i)) != NULL; ++i) {
    fprintf(out, "%s.BR bppsa\\-%s (1)", i == 0 ? "" : ",\n", verb);
  }
  fputs("\n", out);
}

void bppsa_shell_manual(FILE *out, const char *verb) {
  char name[BPPSA_COMMAND_NAME];
  if (verb == NULL) {
    write_program(out);
    return;
  }
  write_title(out, verb);
  fprintf(out, "the commands of bppsa that begin with %s\n.SH SYNOPSIS\n", verb);
  for (const bppsa_command *const *command = bppsa_commands(); *command != NULL; ++command) {
    if (strcmp((*command)->verb, verb) == 0) {
      fputs(".B bppsa ", out);
      write_text(out, bppsa_command_name(*command, name, sizeof name));
      fputs("\n[\\fIOPTION\\fR]...\n.br\n", out);
    }
  }
  fputs(".SH COMMANDS\nValues are written \\-\\-option VALUE or \\-\\-option=VALUE; of an option given twice the last counts.\n",
        out);
  for (const bppsa_command *const *command = bppsa_commands(); *command != NULL; ++command) {
    if (strcmp((*command)->verb, verb) == 0) {
      write_command(out, *command);
    }
  }
  fputs(".SH SEE ALSO\n.BR bppsa (1)\n", out);
}
