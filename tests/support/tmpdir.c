/* tests/support/tmpdir.c - see tmpdir.h. */
#include "tests/support/tmpdir.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Check turns the abort into a failed test; programs without Check can use this too. */
static _Noreturn void tmpdir_fail(const char *what, const char *path)
{
    (void)fprintf(stderr, "%s '%s': %s\n", what, path, strerror(errno));
    abort();
}

void sl_tmpdir_make(struct sl_tmpdir *out, const char *base)
{
    int used = snprintf(out->path, sizeof(out->path), "%s/sl-test-XXXXXX", base);
    SL_ASSERT(used > 0 && (size_t)used < sizeof(out->path));
    if (mkdtemp(out->path) == NULL) {
        tmpdir_fail("make directory", out->path);
    }
}

static int tmpdir_remove_one(const char *path, const struct stat *status, int kind,
                             struct FTW *walk)
{
    (void)status;
    (void)walk;
    if (kind == FTW_DNR) { /* a test removed the permission */
        (void)chmod(path, 0700);
    }
    return remove(path) == 0 || errno == ENOENT ? 0 : -1;
}

void sl_tmpdir_remove(struct sl_tmpdir *tmpdir)
{
    enum { FDS_MAX = 16 };
    if (tmpdir->path[0] == '\0') {
        return;
    }
    if (nftw(tmpdir->path, tmpdir_remove_one, FDS_MAX, FTW_DEPTH | FTW_PHYS) != 0 &&
        errno != ENOENT) {
        tmpdir_fail("remove", tmpdir->path);
    }
    tmpdir->path[0] = '\0';
}

char *sl_tmpdir_at(const struct sl_tmpdir *tmpdir, const char *name, char *out, size_t out_bytes)
{
    int used = snprintf(out, out_bytes, "%s/%s", tmpdir->path, name);
    SL_ASSERT(used > 0 && (size_t)used < out_bytes);
    return out;
}

void sl_tmpdir_write(const char *path, const void *bytes, size_t length_bytes)
{
    SL_AUTO(close) int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) {
        tmpdir_fail("create", path);
    }
    for (size_t done = 0; done < length_bytes;) {
        ssize_t wrote = write(fd, (const char *)bytes + done, length_bytes - done);
        if (wrote < 0 && errno != EINTR) {
            tmpdir_fail("write", path);
        }
        done += wrote > 0 ? (size_t)wrote : 0;
    }
}
