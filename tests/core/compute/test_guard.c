/* The SIMT machine ends a program that reads or writes behind an allocation of the emulated device's memory, or frees what is none;
 * other tests rely on that. */
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/compute/memory.h"
#include "tests/core/helpers.h"
#include "tests/support/support.h"

typedef enum { READS, WRITES, FREES } deed;

/* Allocates `bytes`, touches byte `at` of them, frees them; or frees what is `at` bytes behind their beginning. Does not return. */
static void touch(const bppsa_device *device, deed what, int64_t bytes, int64_t at) {
  void *block = NULL;
  if (bppsa_memory_alloc(device, bytes, &block) != BPPSA_OK) {
    _exit(2);
  }
  volatile unsigned char *byte = (unsigned char *)block + at;
  if (what == WRITES) {
    *byte = 7;
  }
  const unsigned char found = what == READS ? *byte : 0;
  bppsa_memory_free(device, what == FREES ? (void *)(uintptr_t)byte : block);
  _exit(found == 1 ? 3 : 0);
}

static bool survives(const bppsa_device *device, deed what, int64_t bytes, int64_t at) {
  fflush(NULL);
  const pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    const int nowhere = open("/dev/null", O_WRONLY);
    (void)dup2(nowhere, STDOUT_FILENO);
    (void)dup2(nowhere, STDERR_FILENO); /* sanitizers and the machine say what is wrong */
    touch(device, what, bytes, at);
  }
  int status = -1;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  if (WIFEXITED(status)) {
    assert_true(WEXITSTATUS(status) != 2 && WEXITSTATUS(status) != 3); /* it came so far, and no fresh byte is 1 */
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void ends_programs_that_leave_their_blocks(void **state) {
  (void)state;
  bppsa_device *device = emulated_device(1);
  static const int64_t sizes[] = {1, 16, 61, 4096, 5000, 8192};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
    const int64_t bytes = sizes[i];
    assert_true(survives(device, WRITES, bytes, bytes - 1));
    assert_true(survives(device, READS, bytes, bytes - 1));
    assert_false(survives(device, WRITES, bytes, bytes));
    assert_false(survives(device, READS, bytes, (bytes + 15) / 16 * 16)); /* the machine does not see a read nearer than that */
  }
  assert_true(survives(device, FREES, 64, 0));
  assert_false(survives(device, FREES, 64, 16));
  bppsa_device_destroy(device);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(ends_programs_that_leave_their_blocks)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
