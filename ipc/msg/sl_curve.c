/* ipc/msg/sl_curve.c - key files of nodes. */
#include "ipc/msg/sl_curve.h"
#include "ipc/msg/msg_internal.h"
#include "runtime/base/sl_config.h"
#include "runtime/base/sl_trust.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#define PATH_BYTES      1200u
#define FILE_BYTES_MAX  1024u
#define Z85_KEY_LENGTH  (SL_CURVE_TEXT_BYTES - 1u)
#define Z85_OTHER_SIGNS ".-:+=^!/*?&<>()[]{}@%$#"
/* Needs of a context's first socket: 5 descriptors, the same again for a peer's; 2 threads. */
#define CONTEXT_DESCRIPTORS 10u
#define CONTEXT_THREADS     2u

static sl_err path_of(const char *directory, const char *node, const char *ending,
                      char out[PATH_BYTES], struct sl_error *why)
{
    if (!sl_actor_name_is_clean(node, strlen(node))) {
        return sl_fail(why, SL_ERR_INVALID,
                       "'%.40s' is not a node name: 1 to %u of a-z, A-Z, 0-9, '.', '-', '_'", node,
                       SL_NAME_BYTES_MAX);
    }
    int length = snprintf(out, PATH_BYTES, "%s/%s%s", directory, node, ending);
    return length > 0 && (size_t)length < PATH_BYTES
               ? SL_OK
               : sl_fail(why, SL_ERR_INVALID, "the path of the key files is too long");
}

/* Writes a temporary file, syncs it, and then gives it its name, if that is free or may be
 * replaced. So a power failure leaves a complete file or none. */
static sl_err file_write(const char *path, mode_t mode, const char *text, bool replaces,
                         struct sl_error *why)
{
    char beside[PATH_BYTES + 32];
    (void)snprintf(beside, sizeof(beside), "%s.%d", path, (int)getpid());
    (void)unlink(beside); /* of an earlier process with this pid */
    int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0) {
        return sl_fail_os(why, errno, "make '%s'", beside);
    }
    size_t length = strlen(text);
    ssize_t written = write(fd, text, length);
    int os_code = written < 0 ? errno : written != (ssize_t)length ? ENOSPC : 0;
    if (os_code == 0 && fsync(fd) != 0) {
        os_code = errno;
    }
    (void)close(fd);
    if (os_code == 0 && (replaces ? rename(beside, path) : link(beside, path)) != 0) {
        os_code = errno;
    }
    if (os_code != 0 || !replaces) {
        (void)unlink(beside);
    }
    return os_code == 0 ? SL_OK : sl_fail_os(why, os_code, "make '%s'", path);
}

sl_err sl_curve_make(const char *directory, const char *node, struct sl_error *why)
{
    char secret_path[PATH_BYTES], public_path[PATH_BYTES], text[FILE_BYTES_MAX];
    struct sl_curve_pair pair = {0};
    struct stat status;
    sl_err err = path_of(directory, node, ".secret", secret_path, why);
    err = err == SL_OK ? path_of(directory, node, ".pub", public_path, why) : err;
    err = err == SL_OK && access(directory, F_OK) != 0 ? sl_dir_make_for(directory, 0, why) : err;
    err = err == SL_OK ? sl_trust_directory(directory, why) : err;
    bool for_another = err == SL_ERR_FOREIGN && geteuid() == 0 && stat(directory, &status) == 0 &&
                       (status.st_mode & 0022) == 0; /* root creates the keys of a node's user */
    if (err != SL_OK && !for_another) {
        return err;
    }
    if (zmq_curve_keypair(pair.public_text, pair.secret_text) != 0) {
        return sl_fail(why, SL_ERR_UNSUPPORTED, "this ZeroMQ was built without CURVE");
    }
    (void)snprintf(text, sizeof(text), "public = %s\nsecret = %s\n", pair.public_text,
                   pair.secret_text);
    err = file_write(secret_path, 0600, text, false, why);
    if (err == SL_OK) {
        (void)snprintf(text, sizeof(text), "public = %s\n", pair.public_text);
        err = file_write(public_path, 0644, text, true, why); /* replaces that of an earlier pair */
    }
    err = err == SL_OK ? sl_dir_sync(directory, why) : err;
    explicit_bzero(text, sizeof(text));
    explicit_bzero(&pair, sizeof(pair));
    return err;
}

static bool is_z85(const char *at, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        bool plain = (at[i] >= '0' && at[i] <= '9') || (at[i] >= 'a' && at[i] <= 'z') ||
                     (at[i] >= 'A' && at[i] <= 'Z');
        if (!plain && (at[i] == '\0' || strchr(Z85_OTHER_SIGNS, at[i]) == NULL)) {
            return false;
        }
    }
    return true;
}

/* Gives the value of a line `word = VALUE`. */
static bool value_of(const char *text, const char *word, char out[SL_CURVE_TEXT_BYTES])
{
    size_t word_length = strlen(word);
    for (const char *line = text; line != NULL && *line != '\0';) {
        const char *end = strchr(line, '\n');
        size_t length = end != NULL ? (size_t)(end - line) : strlen(line);
        if (length == word_length + 3 + Z85_KEY_LENGTH && memcmp(line, word, word_length) == 0 &&
            memcmp(line + word_length, " = ", 3) == 0 &&
            is_z85(line + word_length + 3, Z85_KEY_LENGTH)) {
            memcpy(out, line + word_length + 3, Z85_KEY_LENGTH);
            out[Z85_KEY_LENGTH] = '\0';
            return true;
        }
        line = end != NULL ? end + 1 : NULL;
    }
    return false;
}

/* placed: sl_trust_directory has checked the directory. */
static sl_err file_read(const char *path, bool private, bool placed, char text[FILE_BYTES_MAX + 1],
                        struct sl_error *why)
{
    struct sl_error inner = {0};
    sl_err err = sl_trust_read(path, private ? SL_TRUST_SECRET : SL_TRUST_RIGHT, placed, text,
                               FILE_BYTES_MAX + 1, &inner);
    return err == SL_OK ? SL_OK
                        : sl_fail(why, SL_ERR_CONFIG, "key file %s%s", inner.text,
                                  err == SL_ERR_NOT_FOUND ? " (sluicectl keygen makes one)" : "");
}

sl_err sl_curve_load(const char *directory, const char *node, struct sl_curve_pair *out,
                     struct sl_error *why)
{
    char path[PATH_BYTES], text[FILE_BYTES_MAX + 1] = "";
    sl_err err = path_of(directory, node, ".secret", path, why);
    err = err == SL_OK ? file_read(path, true, false, text, why) : err;
    if (err != SL_OK) {
        return err;
    }
    bool good =
        value_of(text, "public", out->public_text) && value_of(text, "secret", out->secret_text);
    explicit_bzero(text, sizeof(text));
    return good ? SL_OK : sl_fail(why, SL_ERR_CONFIG, "key file '%s' holds no pair of keys", path);
}

static sl_err public_load(const char *directory, const char *node, bool placed,
                          char out[SL_CURVE_TEXT_BYTES], struct sl_error *why)
{
    char path[PATH_BYTES], text[FILE_BYTES_MAX + 1] = "";
    sl_err err = path_of(directory, node, ".pub", path, why);
    err = err == SL_OK ? file_read(path, false, placed, text, why) : err;
    if (err != SL_OK) {
        return err;
    }
    return value_of(text, "public", out)
               ? SL_OK
               : sl_fail(why, SL_ERR_CONFIG, "key file '%s' holds no public key", path);
}

sl_err sl_curve_load_public(const char *directory, const char *node, char out[SL_CURVE_TEXT_BYTES],
                            struct sl_error *why)
{
    return public_load(directory, node, false, out, why);
}

/* Gives the node's name that a file name contains; false: not a key file. */
static bool name_of(const char *file, char name[SL_NAME_BYTES_MAX + 1])
{
    size_t length = strlen(file);
    if (length <= 4 || strcmp(file + length - 4, ".pub") != 0 ||
        !sl_actor_name_is_clean(file, length - 4)) {
        return false;
    }
    memcpy(name, file, length - 4);
    name[length - 4] = '\0';
    return true;
}

sl_err sl_curve_who(const char *directory, const char public_text[SL_CURVE_TEXT_BYTES],
                    char name[32])
{
    char candidate[SL_NAME_BYTES_MAX + 1], text[SL_CURVE_TEXT_BYTES];
    DIR *files = sl_trust_directory(directory, NULL) == SL_OK ? opendir(directory) : NULL;
    if (files == NULL) {
        return SL_ERR_PERMISSION;
    }
    sl_err err = SL_ERR_PERMISSION;
    for (uint32_t i = 0; err != SL_OK && i < SL_CURVE_ALLOWED_MAX; i++) {
        const struct dirent *file = readdir(files);
        if (file == NULL) {
            break;
        }
        if (name_of(file->d_name, candidate) &&
            public_load(directory, candidate, true, text, NULL) == SL_OK &&
            strcmp(text, public_text) == 0) { /* public keys are not secret */
            memcpy(name, candidate, sizeof(candidate));
            err = SL_OK;
        }
    }
    (void)closedir(files);
    return err;
}

void sl_curve_text(const unsigned char key[32], char out[SL_CURVE_TEXT_BYTES])
{
    out[0] = '\0';
    (void)zmq_z85_encode(out, key, 32);
}

/* Ends when its creator releases the lock. */
static void *thread_try(void *lock)
{
    (void)pthread_mutex_lock(lock);
    (void)pthread_mutex_unlock(lock);
    return NULL;
}

/* Returns 0, or the error of pthread_create or eventfd. */
static int context_try(void)
{
    int fds[CONTEXT_DESCRIPTORS], failed = 0;
    pthread_t threads[CONTEXT_THREADS];
    uint32_t fd_count = 0, thread_count = 0;
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    (void)pthread_mutex_lock(&lock);
    while (failed == 0 && fd_count < CONTEXT_DESCRIPTORS) {
        fds[fd_count] = eventfd(0, EFD_CLOEXEC);
        failed = fds[fd_count] < 0 ? errno : 0;
        fd_count += failed == 0;
    }
    while (failed == 0 && thread_count < CONTEXT_THREADS) {
        failed = pthread_create(&threads[thread_count], NULL, thread_try, &lock);
        thread_count += failed == 0;
    }
    (void)pthread_mutex_unlock(&lock);
    while (thread_count > 0) {
        (void)pthread_join(threads[--thread_count], NULL);
    }
    while (fd_count > 0) {
        (void)close(fds[--fd_count]);
    }
    return failed;
}

sl_err sl_zmq_context_open(void **out, struct sl_error *why)
{
    int failed = context_try();
    if (failed != 0) {
        return sl_fail(why, SL_ERR_LIMIT,
                       "ZeroMQ needs %u descriptors and %u threads, this process gets no more: %s",
                       CONTEXT_DESCRIPTORS, CONTEXT_THREADS, zmq_strerror(failed));
    }
    *out = zmq_ctx_new();
    return *out != NULL ? SL_OK : sl_fail_os(why, errno, "make a context of ZeroMQ");
}
