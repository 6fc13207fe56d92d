/* actors/swapper/events.c - events of engines that COPYs wait for. They are polled while the COPY
 * is queued, so neither the device nor other COPYs wait. */
#include "actors/swapper/internal.h"

#define EVENT_PAUSE_NS_MIN (20 * SL_NS_PER_US)
#define EVENT_PAUSE_NS_MAX SL_NS_PER_MS

void sw_event_close(struct swapper *self, struct sw_job *job)
{
    if (job->event_state == SW_EVENT_OPEN) {
        self->memory.device->ops->event_close(self->memory.device, job->event);
    }
    job->event_state = SW_EVENT_OVER;
}

static sl_err event_ask(struct swapper *self, struct sw_job *job, struct sl_error *why)
{
    struct sl_device *device = self->memory.device;
    bool over = false;
    if (device->ops->event_open == NULL) {
        return sl_fail(why, SL_ERR_UNSUPPORTED, "device %s does not support events",
                       device->ops->name);
    }
    if (job->event_state == SW_EVENT_NEW) {
        sl_err err = device->ops->event_open(device, job->event_handle, &job->event, why);
        if (err != SL_OK) {
            return err;
        }
        job->event_state = SW_EVENT_OPEN;
        job->event_asked_ns = self->env->now_ns;
    }
    sl_err err = device->ops->event_ended(device, job->event, &over, why);
    if (err == SL_OK && over) {
        sw_event_close(self, job);
    }
    return err;
}

/* Polls again after an eighth of the wait so far, within bounds. */
sl_err sw_events_ask(struct swapper *self, uint64_t *again_ns)
{
    uint32_t cursor = 0;
    *again_ns = SL_NEVER_NS;
    for (struct sw_job *job; (job = sw_jobs_each(self->jobs, &cursor)) != NULL;) {
        const struct sw_engine *engine = sw_engine_find(self, job->engine_id);
        if (job->event_state == SW_EVENT_OVER || engine == NULL ||
            engine->state != SW_ENGINE_READY) {
            continue;
        }
        struct sl_error why = {0};
        sl_err err = event_ask(self, job, &why);
        if (err != SL_OK) {
            sw_job_answer(self, job, err, &why);
        } else if (job->event_state != SW_EVENT_OVER) {
            uint64_t pause_ns = (self->env->now_ns - job->event_asked_ns) / 8;
            pause_ns = SL_MIN(SL_MAX(pause_ns, EVENT_PAUSE_NS_MIN), EVENT_PAUSE_NS_MAX);
            *again_ns = SL_MIN(*again_ns, self->env->now_ns + pause_ns);
        }
        if (sl_err_class(err) == SL_CLASS_RESTART) {
            return err;
        }
    }
    return SL_OK;
}

void sw_events_fini(struct swapper *self)
{
    uint32_t cursor = 0;
    for (struct sw_job *job;
         self->jobs != NULL && (job = sw_jobs_each(self->jobs, &cursor)) != NULL;) {
        sw_event_close(self, job);
    }
}
