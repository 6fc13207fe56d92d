/* runtime/net/fabric/verbs/lib.h - loads libibverbs at run time: one program runs with and without
 * it. Inline functions of its header (post_send, poll_cq, ...) use the device's own table and need
 * nothing here. */
#ifndef SL_FABRIC_VERBS_LIB_H
#define SL_FABRIC_VERBS_LIB_H

#include "runtime/base/sl_error.h"

#include <infiniband/verbs.h>

/* X(name, result, parameters): ibv_NAME of the library. The header has macros of these names that
 * refer to its symbols, so we declare our own. */
#define SL_VERBS_TABLE(X)                                                        \
    X(get_device_list, struct ibv_device **, (int *))                            \
    X(free_device_list, void, (struct ibv_device **))                            \
    X(get_device_name, const char *, (struct ibv_device *))                      \
    X(open_device, struct ibv_context *, (struct ibv_device *))                  \
    X(close_device, int, (struct ibv_context *))                                 \
    X(query_device, int, (struct ibv_context *, struct ibv_device_attr *))       \
    X(query_port, int, (struct ibv_context *, uint8_t, struct ibv_port_attr *))  \
    X(alloc_pd, struct ibv_pd *, (struct ibv_context *))                         \
    X(dealloc_pd, int, (struct ibv_pd *))                                        \
    X(create_comp_channel, struct ibv_comp_channel *, (struct ibv_context *))    \
    X(destroy_comp_channel, int, (struct ibv_comp_channel *))                    \
    X(create_cq, struct ibv_cq *,                                                \
      (struct ibv_context *, int, void *, struct ibv_comp_channel *, int))       \
    X(destroy_cq, int, (struct ibv_cq *))                                        \
    X(get_cq_event, int, (struct ibv_comp_channel *, struct ibv_cq **, void **)) \
    X(ack_cq_events, void, (struct ibv_cq *, unsigned int))                      \
    X(create_qp, struct ibv_qp *, (struct ibv_pd *, struct ibv_qp_init_attr *))  \
    X(modify_qp, int, (struct ibv_qp *, struct ibv_qp_attr *, int))              \
    X(destroy_qp, int, (struct ibv_qp *))                                        \
    X(reg_mr, struct ibv_mr *, (struct ibv_pd *, void *, size_t, int))           \
    X(dereg_mr, int, (struct ibv_mr *))                                          \
    X(get_async_event, int, (struct ibv_context *, struct ibv_async_event *))    \
    X(ack_async_event, void, (struct ibv_async_event *))                         \
    X(wc_status_str, const char *, (enum ibv_wc_status))

#define SL_VERBS_FIELD(name, result, parameters) result(*verbs_##name) parameters;
struct sl_verbs_lib {
    SL_VERBS_TABLE(SL_VERBS_FIELD)
    ssize_t (*verbs_query_gid_table)(struct ibv_context *, struct ibv_gid_entry *, size_t, uint32_t,
                                     size_t);
    /* NULL: the library is too old (before rdma-core 34) */
    struct ibv_mr *(*verbs_reg_dmabuf_mr)(struct ibv_pd *, uint64_t, size_t, uint64_t, int, int);
};
/* Errors: SL_ERR_UNSUPPORTED (no library, or a function is missing). Loaded once, never unloaded:
 * its providers keep threads and exit handlers. */
sl_err sl_verbs_load(struct sl_verbs_lib *out, struct sl_error *why);

#endif
