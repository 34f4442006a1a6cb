/* Reading NPZ files (core/files/npz.h writes them): the part of ZIP that NumPy and SciPy write, stored and deflated members
 * (APPNOTE 6.3.3, §4.3 and 4.4), found through the central directory. Zip64 records, which members of 4 GiB and more need, are not
 * known. */
#ifndef BPPSA_CORE_FILES_ARCHIVE_H
#define BPPSA_CORE_FILES_ARCHIVE_H

#include "core/base/text.h"

/* The most bytes of a compressed member once it is inflated, so that the worst file takes less than 1 GiB and 5 s. Members that are
 * not compressed take what their files hold. */
#define BPPSA_ARCHIVE_INFLATED_LIMIT ((int64_t)96 << 20)

typedef struct bppsa_archive bppsa_archive;

/* Reads an archive and its directory; `path` is borrowed until it is closed. ERR_IO, ERR_FORMAT, ERR_MEMORY. */
bppsa_status bppsa_archive_open(const char *path, bppsa_archive **archive);
void bppsa_archive_close(bppsa_archive *archive); /* NULL is legal */
const char *bppsa_archive_path(const bppsa_archive *archive);
/* The bytes of a member, "data.npy", checked against its checksum (owned, bppsa_free). expected: the words of the message where
 * the member is missing. ERR_FORMAT; ERR_UNSUPPORTED: an encrypted member, another compression; ERR_MEMORY. */
bppsa_status bppsa_archive_read(bppsa_archive *archive, const char *name, const char *expected, unsigned char **bytes,
                                int64_t *size);
/* Adds the names of the archive's arrays, "a, b, c", and counts them. ERR_MEMORY. */
bppsa_status bppsa_archive_list(const bppsa_archive *archive, bppsa_text *names, int64_t *count);

#endif
