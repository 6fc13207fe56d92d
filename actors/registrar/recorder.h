/* actors/registrar/recorder.h - a recording of what is asked for, for `python -m sluice.advise`.
 *
 * Setting `record`. The registrar is who sees most: each value and block that is committed, with
 * its place in its chain, and each use that readers and engines note in their access rings. It
 * packs them into frames (runtime/base/sl_recording.h); a helper thread writes one while the next
 * is filled. A disk that is slower than that costs events, which are counted; nobody waits. */
#ifndef SL_REGISTRAR_RECORDER_H
#define SL_REGISTRAR_RECORDER_H

#include "actors/registrar/base/core.h"
#include "runtime/base/sl_recording.h"

#include <stdio.h>

#define REG_RECORD_BUFFER_BYTES (256u << 10)
#define REG_RECORD_FLUSH_NS     SL_NS_PER_S /* a kill costs what came after the last one */

/* What a helper thread has while it works on the file. */
struct reg_record_file {
    const char *path;
    struct sl_recording_header header;
    bool go_on; /* the file is one of this node's life: it is continued */
    int fd;     /* -1: not open */
    uint64_t end_bytes;
    struct sl_recording_frame frame; /* to be written there */
    bool continued;                  /* it was there */
    struct sl_error why;
};

/* For helper threads: context is the file. Opens it, or goes on with the one that is there: an old
 * recording of another life becomes PATH.1, anything else is left alone. Errors: SL_ERR_OS,
 * SL_ERR_EXISTS (no recording has this name), SL_ERR_BUSY (another node records there). */
sl_err reg_record_file_open(void *context, uint32_t thread);
/* Appends. Errors: SL_ERR_OS; then the file is as long as before, as far as that was possible. */
sl_err reg_record_file_write(void *context, uint32_t thread);
void reg_record_file_close(struct reg_record_file *file);

struct reg_recorder {
    bool on;                    /* there is a file, and nothing ended it */
    bool opened, working, last; /* working: a helper thread has the file; last: the end is noted */
    struct reg_record_file file;
    uint64_t bytes_max;   /* setting */
    uint64_t given_bytes; /* of the file, with what a helper thread is writing */
    struct reg_record_note {
        struct sl_recording_salt salt;
        uint64_t file_id, began_ns; /* monotonic */
    } note;
    sl_ref note_ref;
    unsigned char *buffers[2];
    uint32_t active;
    struct sl_recording_frame frame;
    uint64_t frame_began_ns;
    uint64_t lost_count;       /* events that had no room, since the last that had */
    uint64_t rings_lost_count; /* of access rings, that are told */
    uint64_t op_id;            /* of the last STORE */
    bool drained;              /* access rings, for the message that is being handled */
    uint64_t model_hash, model_tokens, model_at_ns; /* of the last model asked about */
    struct {
        sl_metric recorded_count, record_lost_count, record_bytes;
    } metric;
};

extern const struct reg_part reg_recorder_part;

#endif
