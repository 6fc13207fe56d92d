/* runtime/base/sl_base.c - functions of sl_base.h. */
#include "runtime/base/sl_base.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

_Noreturn void sl_assert_failed(const char *condition, const char *file, int line,
                                const char *function)
{
    /* stderr is the actor's log file under the supervisor, and unbuffered. */
    fprintf(stderr, "%s:%d: %s: assertion failed: %s\n", file, line, function, condition);
    abort();
}

void sl_auto_free(void *at)
{
    void **pointer = (void **)at;
    free(*pointer);
    *pointer = NULL;
}

void sl_auto_fclose(void *at)
{
    FILE **file = (FILE **)at;
    if (*file != NULL) {
        (void)fclose(*file);
        *file = NULL;
    }
}

void sl_auto_closedir(void *at)
{
    DIR **directory = (DIR **)at;
    if (*directory != NULL) {
        (void)closedir(*directory);
        *directory = NULL;
    }
}

void sl_auto_close(void *at)
{
    int *fd = (int *)at;
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

bool sl_same_bytes(const void *a, const void *b, size_t length_bytes)
{
    const volatile unsigned char *one = a, *other = b;
    unsigned char difference = 0;
    for (size_t i = 0; i < length_bytes; i++) {
        difference = (unsigned char)(difference | (one[i] ^ other[i]));
    }
    return difference == 0;
}
