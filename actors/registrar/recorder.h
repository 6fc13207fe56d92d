/* actors/registrar/recorder.h - records the requests of a node for `python -m sluice.advise`.
 *
 * Enabled by the setting `record`. The registrar sees each value and block that is committed, its
 * place in its chain, and each use that readers note in their access rings. It packs these events
 * into frames (runtime/base/sl_recording.h). A helper thread writes one frame while the next is
 * filled. If the disk is too slow, events are dropped and counted; no request waits. */
#ifndef SL_REGISTRAR_RECORDER_H
#define SL_REGISTRAR_RECORDER_H

#include "actors/registrar/base/core.h"
#include "runtime/base/sl_recording.h"

#include <stdio.h>

#define REG_RECORD_BUFFER_BYTES (256u << 10)
#define REG_RECORD_FLUSH_NS     SL_NS_PER_S /* a kill loses the events since the last flush */

/* The state of the file; a helper thread has it while it works. */
struct reg_record_file {
    const char *path;
    struct sl_recording_header header;
    bool append_to; /* this node began the file: append to it */
    int fd;         /* -1: not open */
    uint64_t end_bytes;
    struct sl_recording_frame frame; /* the frame to append */
    bool continued;                  /* the file existed and is appended to */
    struct sl_error why;
};

/* Runs on a helper thread; context is the file. Opens this node's recording or begins one. Any
 * other recording becomes PATH.1; a file that is no recording stays. Errors: SL_ERR_OS,
 * SL_ERR_EXISTS (it is no recording), SL_ERR_BUSY (another node records there). */
sl_err reg_record_file_open(void *context, uint32_t thread);
/* Appends the frame. On SL_ERR_OS the file is cut back to its old length if possible. */
sl_err reg_record_file_write(void *context, uint32_t thread);
void reg_record_file_close(struct reg_record_file *file);

struct reg_recorder {
    bool on;                    /* a file is configured, and recording has not ended */
    bool opened, working, last; /* working: a thread has the file; last: final event recorded */
    struct reg_record_file file;
    uint64_t bytes_max;   /* setting */
    uint64_t given_bytes; /* of the file, including what a helper thread is writing */
    struct reg_record_note {
        struct sl_recording_salt salt;
        uint64_t file_id, began_ns; /* monotonic */
    } note;
    sl_ref note_ref;
    unsigned char *buffers[2];
    uint32_t active;
    struct sl_recording_frame frame;
    uint64_t frame_began_ns;
    uint64_t lost_count;       /* events lost since the last one that fitted */
    uint64_t rings_lost_count; /* losses in access rings that are already recorded */
    uint64_t op_id;            /* of the last STORE */
    bool drained;              /* the access rings were read for the current message */
    uint64_t model_hash, model_tokens, model_at_ns; /* of the model that was looked up last */
    struct {
        sl_metric recorded_count, record_lost_count, record_bytes;
    } metric;
};

extern const struct reg_part reg_recorder_part;

#endif
