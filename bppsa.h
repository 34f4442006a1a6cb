/* The whole public interface of libbppsa. */
#ifndef BPPSA_H
#define BPPSA_H

#include "audio/audio.h"
#include "audio/features.h"
#include "audio/instruments.h"
#include "audio/mfcc.h"
#include "audio/wav.h"
#include "core/alloc.h"
#include "core/blas.h"
#include "core/buffer.h"
#include "core/device.h"
#include "core/file.h"
#include "core/json.h"
#include "core/model.h"
#include "core/npy.h"
#include "core/philox.h"
#include "core/safetensors.h"
#include "core/status.h"
#include "core/view.h"
#include "dist/schedule.h"
#include "gru/gru.h"
#include "recurrent/recurrent.h"
#include "rnn/rnn.h"
#include "scan/plan.h"
#include "scan/scan.h"
#include "train/checkpoint.h"
#include "train/dataset.h"
#include "train/log.h"
#include "train/loss.h"
#include "train/optimizer.h"
#include "train/trainer.h"

#include "bppsa_version.h"

#endif
