#include "cli/help.h"

#include <string.h>

#define COLUMN 34 /* where an option's help begins */

void bppsa_help_program(FILE *out) {
  fputs("Usage: bppsa COMMAND [OPTION]...\n\n"
        "Trains recurrent networks with back-propagation as a parallel scan (BPPSA) and compares it with\n"
        "sequential back-propagation (BP).\n\nCommands:\n",
        out);
  char name[BPPSA_COMMAND_NAME];
  for (const bppsa_command *const *command = bppsa_commands(); *command != NULL; ++command) {
    fprintf(out, "  %-21s%s\n", bppsa_command_name(*command, name, sizeof name), (*command)->summary);
  }
  fputs("\nOptions:\n  --help            this text; after a command, its own\n  --version         version and commit\n\n"
        "Exit code: 0 good; 2 the request was wrong; 1 it failed while running.\n\nExample:\n"
        "  bppsa train rnn --seq-len 100 --samples 3200 --epochs 3\n",
        out);
}

void bppsa_help_verb(FILE *out, const char *verb) {
  const char *noun = bppsa_object_noun(verb);
  const char *word = strcmp(noun, "data set") == 0   ? "DATASET"
                     : strcmp(noun, "model") == 0    ? "MODEL"
                     : strcmp(noun, "operator") == 0 ? "OPERATOR"
                     : strcmp(noun, "network") == 0  ? "NETWORK"
                                                     : "BENCHMARK";
  fprintf(out, "Usage: bppsa %s %s [OPTION]...\n\n", verb, word);
  char name[BPPSA_COMMAND_NAME];
  const bppsa_command *first = NULL;
  for (const bppsa_command *const *command = bppsa_commands(); *command != NULL; ++command) {
    if (strcmp((*command)->verb, verb) == 0) {
      fprintf(out, "  bppsa %-21s%s\n", bppsa_command_name(*command, name, sizeof name), (*command)->summary);
      first = first == NULL ? *command : first;
    }
  }
  if (first != NULL) {
    fprintf(out, "\nExample:\n  bppsa %s\n\nbppsa %s --help lists its options.\n", first->example,
            bppsa_command_name(first, name, sizeof name));
  }
}

/* Writes how an option is used, as "  --loss last|all". */
static void usage_text(const bppsa_option_use *use, char *text, size_t size) {
  const bppsa_option_info *info = bppsa_option_of(use);
  const char *metavar = use->metavar != NULL ? use->metavar : info->metavar;
  size_t used = (size_t)snprintf(text, size, "  %s%s%s", info->name, metavar != NULL || info->kind == BPPSA_CHOICE ? " " : "",
                                 metavar != NULL ? metavar : "");
  for (int32_t i = 0; bppsa_option_choice(info, i) != NULL && used < size; ++i) {
    used += (size_t)snprintf(text + used, size - used, "%s%s", i == 0 ? "" : "|", bppsa_option_choice(info, i));
  }
}

static void print_option(FILE *out, const bppsa_option_use *use) {
  const bppsa_option_info *info = bppsa_option_of(use);
  const char *fallback = bppsa_option_fallback(use),
             *otherwise = fallback != NULL    ? fallback
                          : use->help == NULL ? info->otherwise
                                              : NULL; /* a command's own help text says what its default is */
  char usage[120];
  usage_text(use, usage, sizeof usage);
  fprintf(out, "%-*s", COLUMN, usage);
  if (strlen(usage) >= COLUMN) {
    fprintf(out, "\n%*s", COLUMN, "");
  }
  fprintf(out, "%s", use->help != NULL ? use->help : info->help);
  if (otherwise != NULL && !use->required) {
    fprintf(out, " [%s]", otherwise);
  }
  fprintf(out, "%s\n", use->required ? " (required)" : "");
}

void bppsa_help_command(FILE *out, const bppsa_command *command) {
  char name[BPPSA_COMMAND_NAME];
  fprintf(out, "Usage: bppsa %s", bppsa_command_name(command, name, sizeof name));
  for (const bppsa_option_use *use = command->uses; use->option != BPPSA_OPTION_COUNT; ++use) {
    if (use->operand) {
      fprintf(out, " %s", bppsa_option_of(use)->metavar);
    }
  }
  fprintf(out, " [OPTION]...\n\n%s.\n", command->summary);
  for (int group = 0; group < BPPSA_GROUP_COUNT; ++group) {
    bool titled = false;
    for (const bppsa_option_use *use = command->uses; use->option != BPPSA_OPTION_COUNT; ++use) {
      if ((int)bppsa_option_of(use)->group == group) {
        if (!titled) {
          fprintf(out, "\n%s:\n", bppsa_option_group_title((bppsa_option_group)group));
          titled = true;
        }
        print_option(out, use);
      }
    }
  }
  if (command->notes != NULL) {
    fprintf(out, "\n%s", command->notes);
  }
  fprintf(out, "\nValues are written --option VALUE or --option=VALUE; of an option given twice the last counts.\n");
  fprintf(out, "\nExample:\n  bppsa %s\n", command->example);
}
