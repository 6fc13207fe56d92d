/* runtime/net/nics/internal.h - shared by the files of this folder. */
#ifndef SL_NICS_INTERNAL_H
#define SL_NICS_INTERNAL_H

#include "runtime/base/sl_parse.h"
#include "runtime/net/nics/nics.h"

#include <stdio.h>

#define NICS_TEXT_BYTES 128u

/* Reads the first line of a regular file, at most NICS_TEXT_BYTES - 1 bytes, unprintable ones as
 * '?'. False, with out "": empty, unreadable, or not a regular file. Never blocks. */
bool nics_text_read(const char *path, char out[NICS_TEXT_BYTES]);
/* Converts DDDD:BB:DD.F to a unique number. */
bool nics_address_parse(const char *text, uint64_t *out);

#endif
