/* Marks in a device's work; the time between two of them can be read.
 *
 * On a GPU marks are queued with the work (core/compute/graph.h): the time between two marks is the time that the stream took from
 * one to the other, including its waits for the host. On a CPU a mark is the time at which it is set, because work is done when it
 * returns.
 */
#ifndef BPPSA_CORE_MEASURE_TIMELINE_H
#define BPPSA_CORE_MEASURE_TIMELINE_H

#include "core/compute/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct bppsa_timeline bppsa_timeline;

/* Makes `count` marks, none of them set. The device must outlive them. ERR_MEMORY, ERR_CUDA. */
bppsa_status bppsa_timeline_create(const bppsa_device *device, int64_t count, bppsa_timeline **timeline);
void bppsa_timeline_destroy(bppsa_timeline *timeline); /* NULL is legal */
/* Sets a mark behind all work queued so far; setting it again moves it. ERR_CUDA. */
bppsa_status bppsa_timeline_mark(bppsa_timeline *timeline, int64_t index);
/* Waits for the device. *seconds: from one mark to the other. ERR_CUDA: the work failed. ERR_ARGUMENT: a mark was never set. */
bppsa_status bppsa_timeline_seconds(const bppsa_timeline *timeline, int64_t from, int64_t to, double *seconds);

#ifdef __cplusplus
}
#endif
#endif
