/* actors/registrar/recorder_file.c - the file of a recording, opened and written by helper
 * threads. */
#include "actors/registrar/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static sl_err bytes_append(struct reg_record_file *file, const void *all, uint64_t length_bytes)
{
    const unsigned char *bytes = all;
    uint64_t done = 0;
    while (done < length_bytes) {
        ssize_t wrote =
            pwrite(file->fd, bytes + done, length_bytes - done, (off_t)(file->end_bytes + done));
        if (wrote < 0 && errno == EINTR) {
            continue;
        }
        if (wrote <= 0) {
            sl_err err =
                sl_fail_os(&file->why, wrote < 0 ? errno : ENOSPC, "write '%s'", file->path);
            /* If this fails, readers skip the torn frame. */
            (void)ftruncate(file->fd, (off_t)file->end_bytes);
            return err;
        }
        done += (uint64_t)wrote;
    }
    file->end_bytes += done;
    return SL_OK;
}

static sl_err file_begin(struct reg_record_file *file)
{
    file->header.began_unix_ns = sl_clock_wall_ns();
    sl_recording_header_seal(&file->header);
    file->end_bytes = 0;
    return bytes_append(file, &file->header, sizeof(file->header));
}

/* As sl_recording_header_is, or SL_ERR_OS. */
static sl_err fd_is_recording(int fd)
{
    struct sl_recording_header head;
    ssize_t got = pread(fd, &head, sizeof(head), 0);
    return got < 0 ? SL_ERR_OS : sl_recording_header_is(&head, (uint64_t)got);
}

/* Renames an older recording to PATH.1, replacing a recording there, and begins a new file. */
static sl_err file_replace(struct reg_record_file *file)
{
    char old[SL_SETTING_TEXT_BYTES_MAX + 8];
    uint64_t id;
    (void)snprintf(old, sizeof(old), "%s.1", file->path);
    SL_AUTO(close) int there = open(old, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    sl_err is = there >= 0 ? fd_is_recording(there) : errno == ENOENT ? SL_OK : SL_ERR_OS;
    if (is != SL_OK && is != SL_ERR_VERSION) {
        return sl_fail(
            &file->why, SL_ERR_EXISTS,
            "'%s' is an older recording, to be renamed to '%s', which exists and is none: "
            "move one of them",
            file->path, old);
    }
    if (rename(file->path, old) != 0) {
        return sl_fail_os(&file->why, errno, "rename '%s'", file->path);
    }
    reg_record_file_close(file);
    sl_err err = sl_recording_open(file->path, &file->fd, &file->end_bytes, &id, &file->why);
    return err == SL_OK ? file_begin(file) : err;
}

static sl_err file_open(struct reg_record_file *file)
{
    uint64_t id;
    sl_err err = sl_recording_open(file->path, &file->fd, &file->end_bytes, &id, &file->why);
    if (err != SL_OK) {
        return err;
    }
    if (file->end_bytes == 0) {
        return file_begin(file);
    }
    if (!file->append_to || id != file->header.file_id) {
        return file_replace(file);
    }
    file->continued = true; /* readers skip a torn frame at its end */
    return SL_OK;
}

sl_err reg_record_file_open(void *context, uint32_t thread)
{
    struct reg_record_file *file = context;
    (void)thread;
    sl_err err = file_open(file);
    if (err != SL_OK) {
        reg_record_file_close(file);
    }
    return err;
}

sl_err reg_record_file_write(void *context, uint32_t thread)
{
    struct reg_record_file *file = context;
    (void)thread;
    uint64_t length_bytes = sl_recording_frame_end(&file->frame, file->header.file_id);
    return bytes_append(file, file->frame.bytes, length_bytes);
}

void reg_record_file_close(struct reg_record_file *file)
{
    if (file->fd >= 0) {
        (void)close(file->fd);
    }
    file->fd = -1;
}
