#include "terminal/machine.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/compute/blas.h"

const char *bppsa_machine_vector(char *text, size_t size) {
  text[0] = '\0';
#if defined(__x86_64__) || defined(__i386__)
  const struct {
    const char *name;
    int present;
  } features[] = {{"sse4.2", __builtin_cpu_supports("sse4.2")},     {"avx", __builtin_cpu_supports("avx")},
                  {"avx2", __builtin_cpu_supports("avx2")},         {"fma", __builtin_cpu_supports("fma")},
                  {"avx512f", __builtin_cpu_supports("avx512f")},   {"avx512bw", __builtin_cpu_supports("avx512bw")},
                  {"avx512dq", __builtin_cpu_supports("avx512dq")}, {"avx512vl", __builtin_cpu_supports("avx512vl")}};
  size_t used = 0;
  for (size_t i = 0; i < sizeof features / sizeof features[0] && used < size; ++i) {
    if (features[i].present) {
      used += (size_t)snprintf(text + used, size - used, "%s%s", used == 0 ? "" : " ", features[i].name);
    }
  }
#elif defined(__aarch64__)
  snprintf(text, size, "neon");
#endif
  return text;
}

const char *bppsa_machine_date(char *text, size_t size) {
  const time_t now = time(NULL);
  struct tm utc;
  if (gmtime_r(&now, &utc) == NULL || strftime(text, size, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0) {
    text[0] = '\0';
  }
  return text;
}

/* The number after `key` in a small file of the kernel, or -1. key "": the file's first word. */
static int64_t kernel_number(const char *path, const char *key) {
  FILE *file = fopen(path, "r");
  char line[256];
  int64_t number = -1;
  while (file != NULL && number < 0 && fgets(line, sizeof line, file) != NULL) {
    if (strncmp(line, key, strlen(key)) != 0 || sscanf(line + strlen(key), "%" SCNd64, &number) != 1) {
      number = -1;
    }
  }
  if (file != NULL) {
    fclose(file);
  }
  return number;
}

int64_t bppsa_machine_memory(void) {
  const int64_t kib = kernel_number("/proc/meminfo", "MemAvailable:");
  int64_t bytes = kib >= 0 ? kib * 1024 : (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
  const int64_t most = kernel_number("/sys/fs/cgroup/memory.max", ""); /* "max" where there is no limit */
  return most >= 0 && most < bytes ? most : bytes;
}

json_t *bppsa_machine_json(const bppsa_device *device) {
  char vector[BPPSA_VECTOR_TEXT];
  json_t *object = json_object();
  bool ok = object != NULL && bppsa_json_put_text(object, "name", bppsa_device_get_name(device));
  ok = ok && bppsa_json_put_text(object, "hardware", bppsa_device_get_hardware(device));
  ok = ok && bppsa_json_put_integer(object, "threads", bppsa_device_get_threads(device));
  ok = ok && bppsa_json_put_text(object, "vector", bppsa_machine_vector(vector, sizeof vector));
  ok = ok && bppsa_json_put_text(object, "blas", bppsa_blas_description());
  return bppsa_json_finish(object, ok);
}
