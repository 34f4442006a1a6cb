/* What shells learn about the program: completions and manual pages, written from the tables of commands and options. */
#ifndef BPPSA_SHELL_SHELL_H
#define BPPSA_SHELL_SHELL_H

#include <stdio.h>

/* Writes the completion of bash or zsh. */
void bppsa_shell_bash(FILE *out);
void bppsa_shell_zsh(FILE *out);
/* Writes bppsa.1 (verb NULL), or bppsa-VERB.1 with all commands of the verb. */
void bppsa_shell_manual(FILE *out, const char *verb);

/* Returns verb `index`, each verb once; NULL after the last. */
const char *bppsa_shell_verb(int index);

#endif
