/* generate DIRECTORY: writes bppsa.bash, _bppsa, bppsa.1 and a bppsa-VERB.1 for every verb into the directory. */
#include <stdlib.h>

#include "shell/shell.h"

static FILE *create(const char *directory, const char *name, const char *verb, const char *ending) {
  char path[4096];
  const int size = snprintf(path, sizeof path, "%s/%s%s%s", directory, name, verb, ending);
  FILE *file = size < (int)sizeof path ? fopen(path, "w") : NULL;
  if (file == NULL) {
    fprintf(stderr, "generate: %s cannot be written\n", path);
    exit(1);
  }
  return file;
}

static void finish(FILE *file) {
  if (fclose(file) != 0) {
    perror("generate");
    exit(1);
  }
}

int main(int argc, char **argv) {
  const char *verb;
  if (argc != 2) {
    fprintf(stderr, "generate: expected a directory\n");
    return 2;
  }
  FILE *file = create(argv[1], "bppsa.bash", "", "");
  bppsa_shell_bash(file);
  finish(file);
  file = create(argv[1], "_bppsa", "", "");
  bppsa_shell_zsh(file);
  finish(file);
  file = create(argv[1], "bppsa", "", ".1");
  bppsa_shell_manual(file, NULL);
  finish(file);
  for (int i = 0; (verb = bppsa_shell_verb(i)) != NULL; ++i) {
    file = create(argv[1], "bppsa-", verb, ".1");
    bppsa_shell_manual(file, verb);
    finish(file);
  }
  return 0;
}
