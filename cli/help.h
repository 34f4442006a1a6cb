/* Usage texts, printed from the tables of commands and options. */
#ifndef BPPSA_CLI_HELP_H
#define BPPSA_CLI_HELP_H

#include "cli/command.h"

void bppsa_help_program(FILE *out);
void bppsa_help_verb(FILE *out, const char *verb);
void bppsa_help_command(FILE *out, const bppsa_command *command);

#endif
