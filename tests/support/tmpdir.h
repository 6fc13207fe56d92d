/* tests/support/tmpdir.h - a private directory of one test. */
#ifndef SL_TESTS_TMPDIR_H
#define SL_TESTS_TMPDIR_H

#include "runtime/base/sl_base.h"

struct sl_tmpdir {
    char path[64]; /* "": none */
};

/* Makes BASE/sl-test-XXXXXX, 0700; base is "/tmp" or "/dev/shm". A failure ends the test with its
 * reason. */
void sl_tmpdir_make(struct sl_tmpdir *out, const char *base);
/* Removes the directory and its files, without following links; accepts a missing one. */
void sl_tmpdir_remove(struct sl_tmpdir *tmpdir);
/* Writes PATH/NAME into out (a name that does not fit ends the test) and returns it. */
char *sl_tmpdir_at(const struct sl_tmpdir *tmpdir, const char *name, char *out, size_t out_bytes);
/* Makes a file with these bytes, 0600. */
void sl_tmpdir_write(const char *path, const void *bytes, size_t length_bytes);

#endif
