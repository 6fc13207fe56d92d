/* actors/transporter/rails/earlier.c - rails' processes of an earlier door. Each closes its fabric when it
 * hears that its door is dead; this one answers for blocks that they may have written to only then. */
#include "actors/transporter/rails/remote_internal.h"

#include "ipc/sl_rails.h"

bool tr_remotes_earlier_over(struct tr_remotes *all)
{
    struct sl_env *env = all->env;
    struct sl_proc_id procs[SL_RAILS_MAX];
    if (all->earlier_over || all->count == 0) {
        return true;
    }
    uint32_t noted = sl_rails_noted(env, all->count, procs);
    for (uint32_t i = 1; i < TR_RAILS_MAX; i++) {
        bool greeted = all->at[i] != NULL && all->at[i]->lives > 0;
        noted &= greeted ? ~(1u << i) : UINT32_MAX; /* what is noted now is that it serves us */
    }
    all->earlier_over = noted == 0;
    all->asked_ns = all->asked_ns == 0 ? env->now_ns : all->asked_ns;
    if (noted == 0 || all->earlier_killed ||
        env->now_ns < sl_deadline_ns(all->asked_ns, all->fence_ns / 2)) {
        return all->earlier_over;
    }
    all->earlier_killed = true;
    for (uint32_t i = 1; i < TR_RAILS_MAX; i++) {
        if ((noted >> i & 1) != 0 && procs[i].pid != 0) {
            sl_log_write(env->log, SL_LOG_ERROR, 0,
                         "transporter.%u (process %u) has not ended what an earlier door ordered: "
                         "killed",
                         i, procs[i].pid);
            env->ops->kill(env, procs[i]);
        }
    }
    return false;
}
