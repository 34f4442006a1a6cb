/* libsndfile, libsamplerate and libavutil, loaded when sound is first read, so that everything else runs without them. Internal. */
#ifndef BPPSA_AUDIO_LOAD_H
#define BPPSA_AUDIO_LOAD_H

#include <libavutil/avutil.h>
#include <libavutil/tx.h>
#include <samplerate.h>
#include <sndfile.h>

#include "core/base/status.h"

/* The functions that are called: each becomes a member of the table below, and is looked up by its name. */
#define BPPSA_SNDFILE_FUNCTIONS(with)                                                                                            \
  with(sf_open_virtual) with(sf_readf_float) with(sf_close) with(sf_strerror) with(sf_version_string)
#define BPPSA_SAMPLERATE_FUNCTIONS(with) with(src_simple) with(src_strerror) with(src_get_version)
#define BPPSA_AVUTIL_FUNCTIONS(with) with(av_tx_init) with(av_tx_uninit) with(avutil_version)

#define BPPSA_AUDIO_MEMBER(function) __typeof__(function) *function;
typedef struct {
  BPPSA_SNDFILE_FUNCTIONS(BPPSA_AUDIO_MEMBER)
  BPPSA_SAMPLERATE_FUNCTIONS(BPPSA_AUDIO_MEMBER)
  BPPSA_AVUTIL_FUNCTIONS(BPPSA_AUDIO_MEMBER)
} bppsa_audio_functions;

/* Gives the functions of all three libraries; every call gives the same table. ERR_LIBRARY: a library is missing; the message
 * quotes the loader and names the package. */
bppsa_status bppsa_audio_load(const bppsa_audio_functions **functions);

#endif
