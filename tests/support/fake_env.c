/* tests/support/fake_env.c - see fake_env.h. */
#include "tests/support/fake_env.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAKE_FRAME_BYTES (64 * SL_MIB)

static struct fake_env *fake_of(struct sl_env *env)
{
    return (struct fake_env *)env;
}

/* ---- ops ---- */

static sl_err fake_send_op(struct sl_env *env, const char *to, const void *frame,
                           size_t length_bytes, bool reply)
{
    struct fake_env *fake = fake_of(env);
    if (strcmp(fake->unreachable, to) == 0) {
        return SL_ERR_UNREACHABLE;
    }
    uint32_t kept_count = 0;
    for (uint32_t i = 0; i < fake->frame_count;
         i++) { /* reuses the space of frames that were taken */
        if (!fake->frames[i].taken) {
            fake->frames[kept_count++] = fake->frames[i];
        }
    }
    fake->frame_count = kept_count;
    ck_assert_uint_lt(fake->frame_count, FAKE_FRAMES_MAX);
    struct fake_frame *kept = &fake->frames[fake->frame_count++];
    *kept = (struct fake_frame){
        .reply = reply, .bytes = malloc(length_bytes), .length_bytes = length_bytes};
    ck_assert_ptr_nonnull(kept->bytes);
    memcpy(kept->bytes, frame, length_bytes);
    snprintf(kept->to, sizeof(kept->to), "%s", to);
    return SL_OK;
}

static void fake_wake_op(struct sl_env *env, uint64_t at_ns)
{
    fake_of(env)->wake_ns = SL_MIN(fake_of(env)->wake_ns, at_ns);
}

static bool procs_have(const struct sl_proc_id *procs, uint32_t count, struct sl_proc_id proc)
{
    for (uint32_t i = 0; i < count; i++) {
        if (sl_proc_id_equal(procs[i], proc)) {
            return true;
        }
    }
    return false;
}

static void procs_drop(struct sl_proc_id *procs, uint32_t *count, struct sl_proc_id proc)
{
    for (uint32_t i = 0; i < *count; i++) {
        if (sl_proc_id_equal(procs[i], proc)) {
            procs[i--] = procs[--*count];
        }
    }
}

static sl_err fake_watch_op(struct sl_env *env, struct sl_proc_id proc, uint64_t cookie)
{
    struct fake_env *fake = fake_of(env);
    (void)cookie;
    ck_assert_msg(!procs_have(fake->watches, fake->watch_count, proc),
                  "process %u is watched twice", proc.pid);
    ck_assert_uint_lt(fake->watch_count, FAKE_WATCHES_MAX);
    fake->watches[fake->watch_count++] = proc;
    return SL_OK;
}

static void fake_unwatch_op(struct sl_env *env, struct sl_proc_id proc)
{
    procs_drop(fake_of(env)->watches, &fake_of(env)->watch_count, proc);
}

static bool fake_alive_op(struct sl_env *env, struct sl_proc_id proc)
{
    return procs_have(fake_of(env)->living, fake_of(env)->living_count, proc);
}

static bool fake_locked_op(struct sl_env *env, struct sl_proc_id proc)
{
    const struct fake_env *fake = fake_of(env);
    return !procs_have(fake->unlocked, fake->unlocked_count, proc);
}

static void fake_kill_op(struct sl_env *env, struct sl_proc_id proc)
{
    struct fake_env *fake = fake_of(env);
    ck_assert_uint_lt(fake->killed_count, FAKE_PROCS_MAX);
    fake->killed[fake->killed_count++] = proc;
}

static sl_err fake_disk_op(struct sl_env *env, const char *directory, uint32_t queue_depth,
                           bool direct, struct sl_disk **out, struct sl_error *why)
{
    (void)env, (void)directory, (void)queue_depth, (void)direct, (void)out;
    return sl_fail(why, SL_ERR_UNSUPPORTED, "this environment has no disk");
}

static void job_do(struct fake_env *fake, uint32_t thread_count,
                   sl_err (*job)(void *context, uint32_t thread), void *context, uint64_t cookie)
{
    sl_err result = fake->job_fails;
    for (uint32_t i = 0; fake->job_fails == SL_OK && i < thread_count; i++) {
        sl_err err = job(context, i);
        result = result == SL_OK ? err : result;
    }
    ck_assert_uint_lt(fake->jobs_ended_count, FAKE_JOBS_MAX);
    fake->jobs_ended[fake->jobs_ended_count].cookie = cookie;
    fake->jobs_ended[fake->jobs_ended_count++].result = result;
}

static sl_err fake_job_op(struct sl_env *env, uint32_t thread_count,
                          sl_err (*job)(void *context, uint32_t thread), void *context,
                          uint64_t cookie)
{
    struct fake_env *fake = fake_of(env);
    fake->job_count++;
    if (fake->job_refused != SL_OK) {
        return fake->job_refused;
    }
    if (fake->job_held) {
        fake->held_cookie = cookie;
        ck_assert_ptr_null(fake->held_job);
        fake->held_job = job;
        fake->held_context = context;
        fake->held_threads = thread_count;
        return SL_OK;
    }
    job_do(fake, thread_count, job, context, cookie);
    return SL_OK;
}

static uint64_t fake_random_op(struct sl_env *env)
{
    return ++fake_of(env)->seq * UINT64_C(0x9e3779b97f4a7c15);
}

static uint64_t fake_wall_op(struct sl_env *env)
{
    return fake_of(env)->wall_ahead_ns + env->now_ns;
}

static void fake_finish_op(struct sl_env *env)
{
    fake_of(env)->finished = true;
}

static const struct sl_env_ops fake_ops = {
    .send = fake_send_op,
    .wake_at = fake_wake_op,
    .watch = fake_watch_op,
    .unwatch = fake_unwatch_op,
    .alive = fake_alive_op,
    .locked = fake_locked_op,
    .kill = fake_kill_op,
    .disk_open = fake_disk_op,
    .job = fake_job_op,
    .random_u64 = fake_random_op,
    .wall_ns = fake_wall_op,
    .finish = fake_finish_op,
};

/* ---- life ---- */

void fake_set(struct fake_env *fake, const char *name, const char *text)
{
    struct sl_error why = {0};
    ck_assert_msg(sl_config_set(fake->config, name, text, "test", &why) == SL_OK, "%s", why.text);
}

void fake_open(struct fake_env *fake, const struct sl_actor *actor, const char *const *settings)
{
    struct sl_error why = {0};
    memset(fake, 0, sizeof(*fake));
    fake->actor = actor;
    fake->wake_ns = SL_NEVER_NS;
    fake->seq = 1000;
    ck_assert_int_eq(sl_config_create(&fake->config, &why), SL_OK);
    for (size_t i = 0; settings != NULL && settings[i] != NULL; i += 2) {
        fake_set(fake, settings[i], settings[i + 1]);
    }
    snprintf(fake->paths.runtime_dir, sizeof(fake->paths.runtime_dir), "/tmp/sluice-fake-XXXXXX");
    snprintf(fake->paths.shm_dir, sizeof(fake->paths.shm_dir), "/dev/shm/sluice-fake-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(fake->paths.runtime_dir));
    ck_assert_ptr_nonnull(mkdtemp(fake->paths.shm_dir));
    ck_assert_int_eq(sl_codec_create(FAKE_FRAME_BYTES, &fake->give_codec, &why), SL_OK);
    ck_assert_int_eq(sl_codec_create(FAKE_FRAME_BYTES, &fake->take_codec, &why), SL_OK);
    fake->env = (struct sl_env){
        .ops = &fake_ops,
        .name = actor->role,
        .self = {.pid = 1, .start_time = 1},
        .now_ns = 1000 * SL_NS_PER_S,
        .config = fake->config,
        .paths = &fake->paths,
        .next_seq = 1,
    };
    char page[sizeof(fake->paths.shm_dir) + 32];
    (void)snprintf(page, sizeof(page), "%s/metrics.fake", fake->paths.shm_dir);
    struct sl_metrics_options metrics = {
        .path = page, .actor = actor->role, .self = fake->env.self, .trace_events = 64};
    ck_assert_int_eq(sl_metrics_open(&metrics, &fake->env.metrics, &why), SL_OK);
}

static void deliver(struct fake_env *fake, const struct sl_msg *msg)
{
    ck_assert_int_eq(fake->actor->handle(fake->state, msg), SL_OK);
}

static sl_err deliver_job(struct fake_env *fake)
{
    sl_err err = SL_OK;
    for (uint32_t left = fake->jobs_ended_count; left > 0;
         left--) { /* jobs that these start are reported later */
        struct sl_msg msg = {.type = SL_MSG_LOCAL_JOB, .code = fake->jobs_ended[0].result};
        msg.body.local_job.cookie = fake->jobs_ended[0].cookie;
        fake->jobs_ended_count--;
        memmove(&fake->jobs_ended[0], &fake->jobs_ended[1],
                fake->jobs_ended_count * sizeof(fake->jobs_ended[0]));
        if (fake->actor->handle(fake->state, &msg) != SL_OK) {
            ck_assert(fake->env.starting); /* a start may fail late */
            err = msg.code;
        }
    }
    return err;
}

sl_err fake_start(struct fake_env *fake, struct sl_error *why)
{
    fake->state = calloc(1, fake->actor->state_bytes);
    ck_assert_ptr_nonnull(fake->state);
    fake->env.ending = NULL;
    sl_err err = fake->actor->init(fake->state, &fake->env, why);
    if (err == SL_OK) {
        err = deliver_job(fake);
        return err == SL_OK ? SL_OK : sl_fail(why, err, "%s", fake->env.ending);
    }
    return err;
}

void fake_stop(struct fake_env *fake)
{
    fake->actor->fini(fake->state);
    free(fake->state);
    fake->state = NULL;
    for (uint32_t i = 0; i < fake->frame_count; i++) {
        free(fake->frames[i].bytes);
    }
    fake->frame_count = 0;
    fake->watch_count = 0;
    fake->wake_ns = SL_NEVER_NS;
    fake->jobs_ended_count = 0;
    fake->held_job = NULL;
    fake->finished = false;
}

static void directory_remove(const char *path)
{
    DIR *directory = opendir(path);
    if (directory == NULL) {
        return;
    }
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            unlinkat(dirfd(directory), entry->d_name, 0);
        }
    }
    closedir(directory);
    rmdir(path);
}

void fake_close(struct fake_env *fake)
{
    if (fake->state != NULL) {
        fake_stop(fake);
    }
    sl_metrics_close(&fake->env.metrics);
    sl_codec_destroy(&fake->give_codec);
    sl_codec_destroy(&fake->take_codec);
    sl_config_destroy(&fake->config);
    directory_remove(fake->paths.shm_dir);
    directory_remove(fake->paths.runtime_dir);
}

/* ---- processes ---- */

void fake_process_add(struct fake_env *fake, struct sl_proc_id proc)
{
    ck_assert_uint_lt(fake->living_count, FAKE_PROCS_MAX);
    fake->living[fake->living_count++] = proc;
}

bool fake_is_watched(const struct fake_env *fake, struct sl_proc_id proc)
{
    return procs_have(fake->watches, fake->watch_count, proc);
}

void fake_process_end(struct fake_env *fake, struct sl_proc_id proc)
{
    procs_drop(fake->living, &fake->living_count, proc);
    if (fake->state != NULL && fake_is_watched(fake, proc)) {
        procs_drop(fake->watches, &fake->watch_count, proc);
        struct sl_msg msg = {.type = SL_MSG_LOCAL_DIED};
        msg.body.local_died.pid = proc.pid;
        msg.body.local_died.start_time = proc.start_time;
        deliver(fake, &msg);
    }
}

/* ---- messages ---- */

void fake_give(struct fake_env *fake, const char *sender, struct sl_msg *msg)
{
    const void *frame;
    size_t length;
    struct sl_error why = {0};
    struct sl_msg decoded;
    msg->sender = sl_text_of(sender);
    if (msg->seq == 0 && !SL_MSG_IS_REPLY(msg->type)) {
        msg->seq = ++fake->seq;
    }
    if (msg->budget_ns == 0 && !SL_MSG_IS_REPLY(msg->type)) {
        msg->budget_ns = 2 * SL_NS_PER_S;
    }
    ck_assert_msg(sl_codec_encode(fake->give_codec, msg, &frame, &length, &why) == SL_OK, "%s",
                  why.text);
    void *copy = malloc(length);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, frame, length);
    if (msg->version != 0) { /* [[version, ...], ...]: one byte each so far */
        ck_assert_int_eq(((const unsigned char *)frame)[2], SL_WIRE_VERSION);
        memset((unsigned char *)copy + 2, (int)msg->version, 1);
    }
    ck_assert_msg(sl_codec_decode(fake->give_codec, copy, length, &decoded, &why) == SL_OK, "%s",
                  why.text);
    free(copy);
    decoded.received_ns = fake->env.now_ns;
    deliver(fake, &decoded);
    (void)deliver_job(fake);
}

static bool frame_decode(struct fake_env *fake, struct fake_frame *frame, struct sl_msg *out)
{
    struct sl_error why = {0};
    ck_assert_msg(sl_codec_decode(fake->take_codec, frame->bytes, frame->length_bytes, out, &why) ==
                      SL_OK,
                  "%s", why.text);
    return true;
}

static void frame_take(struct fake_frame *frame)
{
    free(frame->bytes);
    frame->bytes = NULL;
    frame->taken = true;
}

static uint32_t frame_type(const struct sl_msg *msg)
{
    bool ahead = (msg->type == SL_MSG_BRING && msg->body.bring.ahead) ||
                 (msg->type == SL_MSG_DISK_READ && msg->body.disk_read.ahead);
    bool slots = msg->type == SL_MSG_BRING && msg->body.bring.slots.count > 0;
    bool raises = msg->type == SL_MSG_DISK_READ && msg->body.disk_read.raise != 0;
    bool gone = msg->type == SL_MSG_DISK_RECLAIM && msg->body.disk_reclaim.gone;
    return msg->type | (ahead ? FAKE_PREFETCH : 0) | (slots ? FAKE_POOL_SLOTS : 0) |
           (raises ? FAKE_RAISE : 0) | (gone ? FAKE_GONE : 0);
}

bool fake_take(struct fake_env *fake, const char *to, uint32_t type, struct sl_msg *out)
{
    for (uint32_t i = 0; i < fake->frame_count; i++) {
        struct fake_frame *frame = &fake->frames[i];
        if (frame->taken || strcmp(frame->to, to) != 0) {
            continue;
        }
        frame_decode(fake, frame, out);
        if (type == 0 || frame_type(out) == type) {
            frame_take(frame);
            return true;
        }
    }
    return false;
}

bool fake_take_reply(struct fake_env *fake, const char *to, uint64_t seq, struct sl_msg *out)
{
    for (uint32_t i = 0; i < fake->frame_count; i++) {
        struct fake_frame *frame = &fake->frames[i];
        if (frame->taken || strcmp(frame->to, to) != 0) {
            continue;
        }
        frame_decode(fake, frame, out);
        if (SL_MSG_IS_REPLY(out->type) && out->reply_to == seq) {
            frame_take(frame);
            return true;
        }
    }
    return false;
}

void fake_answer(struct fake_env *fake, const char *sender, const struct sl_msg *request,
                 struct sl_msg *reply)
{
    reply->type = request->type + 1;
    reply->reply_to = request->seq;
    reply->op_id = request->op_id;
    fake_give(fake, sender, reply);
}

/* ---- time ---- */

void fake_job_run(struct fake_env *fake, uint64_t took_ns)
{
    sl_err (*job)(void *context, uint32_t thread) = fake->held_job;
    ck_assert_ptr_nonnull(job);
    fake->held_job = NULL;
    job_do(fake, fake->held_threads, job, fake->held_context, fake->held_cookie);
    fake->env.now_ns += took_ns;
    (void)deliver_job(fake);
}

void fake_jobs_report(struct fake_env *fake)
{
    while (fake->jobs_ended_count > 0) {
        (void)deliver_job(fake);
    }
}

void fake_advance(struct fake_env *fake, uint64_t ns)
{
    uint64_t until_ns = fake->env.now_ns + ns;
    while (fake->wake_ns <= until_ns) {
        fake->env.now_ns = SL_MAX(fake->wake_ns, fake->env.now_ns);
        fake->wake_ns = SL_NEVER_NS;
        ck_assert_int_eq(fake->actor->tick(fake->state, fake->env.now_ns), SL_OK);
        (void)deliver_job(fake);
        if (fake->wake_ns <= fake->env.now_ns) {
            fake->wake_ns =
                fake->env.now_ns +
                SL_NS_PER_US; /* time advances even if the actor asks to be woken at once */
        }
    }
    fake->env.now_ns = until_ns;
}
