/* Readers: audio/wav.c, audio/decode_sndfile.c, audio/resample_samplerate.c. Options 0: the part is a file. Otherwise parts are
 * chunks of a container: their first four bytes are the name, the rest is the content, and lengths are put in front. Bits 1 and
 * 2: RIFF, RIFX, RF64 with the first part as its ds64 chunk, or RIFF from a pipe: neither its size nor that of its last chunk was
 * known; bit 3: the last chunk's length is one too large. */
#include <string.h>

#include "audio/wav.h"
#include "tests/fuzz/fuzz.h"

enum { FRAMES = 3000 };

static void add_number(fuzz_bytes *bytes, uint64_t value, int size, bool big) {
  for (int i = 0; i < size; ++i) {
    fuzz_add_number(bytes, value >> 8 * (big ? size - 1 - i : i) & 0xff, 1);
  }
}

static void make(const fuzz_input *input, fuzz_bytes *file) {
  static const char *const names[4] = {"RIFF", "RIFX", "RF64", "RIFF"};
  const int container = input->options >> 1 & 3;
  fuzz_bytes chunks = {0};
  for (int i = 0; i < input->count; ++i) {
    const fuzz_part *part = &input->part[i];
    if (part->size < 4) {
      continue;
    }
    const size_t length = part->size - 4 + ((input->options & 8) != 0 && i + 1 == input->count);
    fuzz_add(&chunks, part->data, 4);
    add_number(&chunks, container == 3 && i + 1 == input->count ? UINT32_MAX : length, 4, container == 1);
    fuzz_add(&chunks, part->data + 4, part->size - 4);
    if ((part->size & 1) != 0) {
      fuzz_add(&chunks, "", 1);
    }
  }
  fuzz_add(file, names[container], 4);
  add_number(file, container >= 2 ? UINT32_MAX : chunks.size + 4, 4, container == 1);
  fuzz_add(file, "WAVE", 4);
  fuzz_add(file, chunks.data, chunks.size);
  free(chunks.data);
}

bppsa_status fuzz_run(const fuzz_input *input) {
  static float samples[2 * FRAMES];
  fuzz_bytes file = {0};
  bppsa_wav_info info = {.frames = -1};
  if (input->options == 0) {
    fuzz_add(&file, input->part[0].data, input->part[0].size);
  } else {
    make(input, &file);
  }
  const bppsa_status status =
      bppsa_wav_read(fuzz_file("a.wav", file.data, file.size), input->options >> 4, FRAMES, samples, &info);
  free(file.data);
  FUZZ_CHECK((status == BPPSA_OK) == (info.frames >= 0));
  for (int i = 0; status == BPPSA_OK && i < 2 * FRAMES; ++i) {
    FUZZ_CHECK(samples[i] - samples[i] == 0); /* finite */
    FUZZ_CHECK(info.channels == 2 || samples[i] == samples[i ^ 1]);
  }
  return status;
}

/* The content of a fmt chunk. */
static void add_format(fuzz_bytes *seed, int kind, int channels, uint32_t rate, int block, int bits, const void *more,
                       size_t size, bool big) {
  fuzz_bytes chunk = {0};
  fuzz_add(&chunk, "fmt ", 4);
  add_number(&chunk, (uint64_t)kind, 2, big);
  add_number(&chunk, (uint64_t)channels, 2, big);
  add_number(&chunk, rate, 4, big);
  add_number(&chunk, (uint64_t)rate * (uint64_t)block, 4, big);
  add_number(&chunk, (uint64_t)block, 2, big);
  add_number(&chunk, (uint64_t)bits, 2, big);
  fuzz_add(&chunk, more, size);
  fuzz_add_part(seed, chunk.data, chunk.size);
  free(chunk.data);
}

static void add_data(fuzz_bytes *seed, size_t size) {
  fuzz_bytes chunk = {0};
  fuzz_add(&chunk, "data", 4);
  for (size_t i = 0; i < size; ++i) {
    fuzz_add_number(&chunk, i * 37 % 97, 1);
  }
  fuzz_add_part(seed, chunk.data, chunk.size);
  free(chunk.data);
}

bool fuzz_seed(int index, fuzz_bytes *seed) {
  /* WAVE_FORMAT_EXTENSIBLE: 22 bytes follow, 16 valid bits, mask 3, the GUID of PCM */
  static const uint8_t extensible[24] = {22, 0, 16, 0, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 16, 0, 128, 0, 0, 170, 0, 56, 155, 113};
  /* IMA ADPCM: 2 bytes follow, 505 samples in a block of 256 bytes; Microsoft's: 32 bytes, 500 samples, 7 pairs of coefficients */
  static const uint8_t ima[4] = {2, 0, 249, 1};
  static const uint8_t microsoft[34] = {32, 0,   244, 1,  7, 0,   0, 1, 0, 0,   0, 2,  0,   255, 0, 0,  0,
                                        0,  192, 0,   64, 0, 240, 0, 0, 0, 204, 1, 48, 255, 136, 1, 24, 255};
  static const struct {
    uint8_t options;
    int kind, channels;
    uint32_t rate;
    int block, bits;
    const uint8_t *more;
    size_t more_size, data;
  } seeds[] = {{1, 1, 2, 44100, 4, 16, NULL, 0, 64},
               {1, 1, 1, 8000, 1, 8, NULL, 0, 33},
               {1, 1, 2, 48000, 6, 24, NULL, 0, 60},
               {1, 1, 1, 44100, 4, 32, NULL, 0, 40},
               {1, 3, 2, 22050, 8, 32, NULL, 0, 64},
               {1, 3, 1, 44100, 8, 64, NULL, 0, 64},
               {3, 1, 2, 44100, 4, 16, NULL, 0, 64},
               {1, 6, 1, 8000, 1, 8, NULL, 0, 50},
               {1, 7, 2, 8000, 2, 8, NULL, 0, 50},
               {1, 0xFFFE, 2, 44100, 4, 16, extensible, 24, 64},
               {1, 17, 1, 8000, 256, 4, ima, 4, 512},
               {1, 2, 1, 8000, 256, 4, microsoft, 34, 512},
               {1, 49, 1, 8000, 65, 0, (const uint8_t *)"\2\0\100\1", 4, 130},
               {5, 1, 2, 44100, 4, 16, NULL, 0, 64},
               {9, 1, 2, 44100, 4, 16, NULL, 0, 64},
               {7, 1, 2, 44100, 4, 16, NULL, 0, 67},
               {7, 1, 1, 8000, 1, 8, NULL, 0, 33},
               {0x11, 1, 2, 384000, 4, 16, NULL, 0, 4000}};
  if (index >= (int)(sizeof seeds / sizeof seeds[0])) {
    return false;
  }
  const bool big = (seeds[index].options & 6) == 2, wide = (seeds[index].options & 6) == 4;
  fuzz_add_number(seed, seeds[index].options, 1);
  if (wide) {
    fuzz_bytes chunk = {0};
    const uint64_t riff = 4 + 8 + 28 + 8 + 16 + 8 + seeds[index].data;
    fuzz_add(&chunk, "ds64", 4);
    fuzz_add_number(&chunk, riff, 8);
    fuzz_add_number(&chunk, seeds[index].data, 8);
    fuzz_add_number(&chunk, seeds[index].data / 4, 8);
    fuzz_add_number(&chunk, 0, 4);
    fuzz_add_part(seed, chunk.data, chunk.size);
    free(chunk.data);
  }
  if (index % 3 == 1) { /* a chunk that readers pass over */
    fuzz_add_part_text(seed, "LISTINFOISFT\5\1\1\1abc");
  }
  add_format(seed, seeds[index].kind, seeds[index].channels, seeds[index].rate, seeds[index].block, seeds[index].bits,
             seeds[index].more, seeds[index].more_size, big);
  if (index > 6 && index < 13) { /* the number of frames, which compressed formats need */
    fuzz_add_part(seed, "fact\x40\1\0\0", 8);
  }
  add_data(seed, seeds[index].data);
  return true;
}
