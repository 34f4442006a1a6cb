/* Every public function that returns a status, called with NULL for every pointer and 0, 1 or -1 for every number: an answer
 * that is an error with a message, and no crash. Those that release something take NULL. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/headers/null_calls.h"

/* Those for which NULL has a meaning: no log, and the shape of a scalar. */
static const char *const legal[] = {"bppsa_log_close", "bppsa_shape_bytes", NULL};

static bool is_legal(const char *name) {
  for (int i = 0; legal[i] != NULL; ++i) {
    if (strcmp(legal[i], name) == 0) {
      return true;
    }
  }
  return false;
}

/* In a child process: 0 good, 1 OK where an error was expected, 2 an error without a message. */
static int attempt(const null_call *c, int64_t n) {
  const bppsa_status status = c->call(n);
  if (!c->has_status || is_legal(c->name)) {
    return 0;
  }
  return status == BPPSA_OK ? 1 : bppsa_last_error()[0] == '\0' ? 2 : 0;
}

int main(void) {
  static const char *const problems[] = {"", "answers OK, expected an error", "an error without a message"};
  static const int64_t numbers[] = {0, 1, -1};
  int bad = 0, count = 0;
  for (const null_call *c = null_calls; c->name != NULL; ++c) {
    for (int i = 0; i < 3; ++i, ++count) {
      fflush(stdout);
      const pid_t child = fork();
      if (child == 0) {
        _exit(attempt(c, numbers[i]));
      }
      int status = 0;
      if (child < 0 || waitpid(child, &status, 0) != child) {
        printf("null_calls: no process could be started\n");
        return 1;
      }
      if (!WIFEXITED(status)) {
        printf("%s(NULL, %d): signal %d\n", c->name, (int)numbers[i], WTERMSIG(status));
      } else if (WEXITSTATUS(status) != 0) {
        printf("%s(NULL, %d): %s\n", c->name, (int)numbers[i],
               WEXITSTATUS(status) < 3 ? problems[WEXITSTATUS(status)] : "a sanitizer");
      }
      bad += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    }
  }
  printf("null_calls: %d calls, %d bad\n", count, bad);
  return bad == 0 && count > 300 ? 0 : 1;
}
