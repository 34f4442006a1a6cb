#include "core/compute/device.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/compute/blas.h"
#include "core/compute/device_internal.h"
#include "core/compute/pool.h"

struct bppsa_device {
  bppsa_device_kind kind;
  int32_t index;
  int32_t threads;
  void *stream;  /* GPU only */
  bool borrowed; /* the stream is the caller's */
  char name[24];
  char hardware[128];
};

/* The value of the first "model name" (x86), "Model" or "cpu" (others) line in /proc/cpuinfo; text stays "" if there is none. */
static void processor_name(char *text, size_t size) {
  static const char *const keys[] = {"model name", "Model", "cpu\t"};
  FILE *file = fopen("/proc/cpuinfo", "re");
  if (file == NULL) {
    return;
  }
  char line[512];
  while (text[0] == '\0' && fgets(line, sizeof line, file) != NULL) {
    const char *colon = strchr(line, ':');
    for (size_t k = 0; colon != NULL && k < sizeof keys / sizeof keys[0]; ++k) {
      if (strncmp(line, keys[k], strlen(keys[k])) == 0) {
        const char *value = colon + 1 + strspn(colon + 1, " \t");
        snprintf(text, size, "%.*s", (int)strcspn(value, "\n"), value);
        break;
      }
    }
  }
  fclose(file);
}

bppsa_status bppsa_device_parse(const char *name, bppsa_device_kind *kind, int32_t *index) {
  BPPSA_REQUIRE(name != NULL && kind != NULL && index != NULL);
  if (strcmp(name, "cpu") == 0) {
    *kind = BPPSA_CPU;
    *index = 0;
    return BPPSA_OK;
  }
  if (strncmp(name, "cuda", 4) != 0 || (name[4] != '\0' && name[4] != ':')) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "device \"%s\": expected cpu, cuda or cuda:K", name);
  }
  int32_t k = 0;
  if (name[4] == ':') {
    const char *digits = name + 5;
    const size_t length = strlen(digits);
    if (length < 1 || length > 4 || strspn(digits, "0123456789") != length) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "device \"%s\": K in cuda:K must be a number, 0 .. 9999", name);
    }
    for (size_t i = 0; i < length; ++i) {
      k = 10 * k + (digits[i] - '0');
    }
  }
  *kind = BPPSA_CUDA;
  *index = k;
  return BPPSA_OK;
}

/* The report on the GPUs of this process. One that is good is kept: it is asked for again while a stream is recorded, where the
 * self-test, which takes memory and waits, would spoil the recording. */
static void ask_gpus(bppsa_cuda_report *report) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static bppsa_cuda_report good;
  pthread_mutex_lock(&lock);
  if (!good.kernel_checked) {
    bppsa_cuda_probe(&good);
  }
  *report = good;
  pthread_mutex_unlock(&lock);
}

/* Checks that GPU `index` exists and works. hardware gets its name if it is known. */
static bppsa_status find_gpu(const char *name, int32_t index, char *hardware, size_t size) {
  bppsa_cuda_report report;
  ask_gpus(&report);
  if (!report.built) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "device %s: this build has no CUDA (%s); use device cpu", name,
                      report.detail[0] != '\0' ? report.detail : "compiled without it");
  }
  if (report.devices < 1) {
    const char *reason = report.driver == 0 ? "no driver" : "the driver lists none";
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "device %s: no CUDA device found (%s); use device cpu", name,
                      report.detail[0] != '\0' ? report.detail : reason);
  }
  if (index >= report.devices) {
    return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "device %s: CUDA devices here: %d, so K in cuda:K is at most %d", name,
                      (int)report.devices, (int)report.devices - 1);
  }
  if (!report.kernel_checked) {
    return bppsa_fail(BPPSA_ERR_CUDA, "device %s: the self-test kernel did not run (%s)", name, report.detail);
  }
  if (index == 0) {
    snprintf(hardware, size, "%s", report.name);
  }
  return BPPSA_OK;
}

/* Makes the device that `about` describes; a GPU gets a stream of its own unless it borrows one. */
static bppsa_status open_device(const bppsa_device *about, bppsa_device **device) {
  bppsa_device *made = bppsa_alloc(sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  *made = *about;
  bppsa_status status = bppsa_blas_hold();
  if (status == BPPSA_OK && made->kind == BPPSA_CUDA && !made->borrowed) {
    status = bppsa_cuda_stream_create(made->index, &made->stream);
    if (status != BPPSA_OK) {
      bppsa_blas_release();
    }
  }
  if (status != BPPSA_OK) {
    bppsa_free(made);
    return status;
  }
  *device = made;
  return BPPSA_OK;
}

/* Checks the threads of a device whose kind and index are known, finds its hardware, and makes it. name: in messages. */
static bppsa_status create_device(const char *name, int64_t threads, bppsa_device *made, bppsa_device **device) {
  if (threads < 0 || threads > BPPSA_MAX_THREADS) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "threads %lld: expected 1 .. %d, or 0 for all cores", (long long)threads,
                      BPPSA_MAX_THREADS);
  }
  made->threads = threads == 0 ? bppsa_pool_cpus() : (int32_t)threads;
  if (made->kind == BPPSA_CPU) {
    snprintf(made->name, sizeof made->name, "cpu");
    processor_name(made->hardware, sizeof made->hardware);
  } else {
    snprintf(made->name, sizeof made->name, "cuda:%d", (int)made->index);
    BPPSA_TRY(find_gpu(name, made->index, made->hardware, sizeof made->hardware));
  }
  return open_device(made, device);
}

bppsa_status bppsa_device_create(const char *name, int64_t threads, bppsa_device **device) {
  BPPSA_REQUIRE(name != NULL && device != NULL);
  bppsa_device made = {0};
  BPPSA_TRY(bppsa_device_parse(name, &made.kind, &made.index));
  return create_device(name, threads, &made, device);
}

bppsa_status bppsa_device_on_stream(int32_t index, void *stream, int64_t threads, bppsa_device **device) {
  BPPSA_REQUIRE(device != NULL);
  bppsa_device made = {.kind = BPPSA_CUDA, .stream = stream, .borrowed = true};
  char name[24];
  snprintf(name, sizeof name, "cuda:%d", (int)index);
  BPPSA_TRY(bppsa_device_parse(name, &made.kind, &made.index));
  return create_device(name, threads, &made, device);
}

bppsa_status bppsa_device_fork(const bppsa_device *device, bppsa_device **fork) {
  BPPSA_REQUIRE(device != NULL && fork != NULL);
  bppsa_device about = *device;
  about.stream = NULL;
  about.borrowed = false;
  return open_device(&about, fork);
}

void bppsa_device_destroy(bppsa_device *device) {
  if (device != NULL) {
    bppsa_blas_release();
    if (device->kind == BPPSA_CUDA && !device->borrowed) {
      bppsa_cuda_stream_destroy(device->index, device->stream);
    }
  }
  bppsa_free(device);
}

bppsa_device_kind bppsa_device_get_kind(const bppsa_device *device) {
  return device->kind;
}

int32_t bppsa_device_get_index(const bppsa_device *device) {
  return device->index;
}

int32_t bppsa_device_get_threads(const bppsa_device *device) {
  return device->threads;
}

const char *bppsa_device_get_name(const bppsa_device *device) {
  return device->name;
}

const char *bppsa_device_get_hardware(const bppsa_device *device) {
  return device->hardware;
}

void *bppsa_device_get_stream(const bppsa_device *device) {
  return device->stream;
}

bppsa_status bppsa_device_wait(const bppsa_device *device) {
  BPPSA_REQUIRE(device != NULL);
  return device->kind == BPPSA_CUDA ? bppsa_cuda_wait(device->index, device->stream) : BPPSA_OK;
}
