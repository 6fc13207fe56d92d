/* runtime/net/nics/internal.h - what the files of this folder share. */
#ifndef SL_NICS_INTERNAL_H
#define SL_NICS_INTERNAL_H

#include "runtime/base/sl_parse.h"
#include "runtime/net/nics/nics.h"

#include <stdio.h>

#define NICS_TEXT_BYTES 128u

/* The first line of a plain file, at most NICS_TEXT_BYTES - 1 bytes, what is not printable as '?'.
 * False: there is none; out is "" then. Never blocks: what is no plain file is not read. */
bool nics_text_read(const char *path, char out[NICS_TEXT_BYTES]);
/* DDDD:BB:DD.F as one number, unlike for unlike addresses. */
bool nics_address_parse(const char *text, uint64_t *out);

#endif
