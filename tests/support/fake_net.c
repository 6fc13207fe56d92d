/* tests/support/fake_net.c - see fake_net.h. */
#include "tests/support/fake_net.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct fake_letter letter_of(const char *peer, const void *bytes, size_t length_bytes,
                                    bool answer)
{
    struct fake_letter letter = {.answer = answer, .length_bytes = length_bytes};
    (void)snprintf(letter.peer, sizeof(letter.peer), "%s", peer);
    letter.bytes = malloc(length_bytes + 1);
    ck_assert_ptr_nonnull(letter.bytes);
    memcpy(letter.bytes, bytes, length_bytes);
    return letter;
}

static sl_err net_peer_add(struct sl_control *base, const char *name, const char *address,
                           struct sl_error *why)
{
    struct fake_net *net = (struct fake_net *)base;
    if (net->add_fails != SL_OK) {
        return sl_fail(why, net->add_fails, "the test says so");
    }
    (void)snprintf(net->added, sizeof(net->added), "%s", name);
    (void)snprintf(net->where, sizeof(net->where), "%s", address);
    net->add_count++;
    return SL_OK;
}

static sl_err net_send(struct sl_control *base, const char *peer, const void *frame,
                       size_t length_bytes, bool answer)
{
    struct fake_net *net = (struct fake_net *)base;
    if (net->cut) {
        return SL_ERR_UNREACHABLE;
    }
    ck_assert_uint_lt(net->out_count, FAKE_LETTERS_MAX);
    net->out[net->out_count++] = letter_of(peer, frame, length_bytes, answer);
    return SL_OK;
}

static bool net_receive(struct sl_control *base, struct sl_control_frame *out)
{
    struct fake_net *net = (struct fake_net *)base;
    static unsigned char *last; /* borrowed until the next receive */
    free(last);
    last = net->in.bytes;
    if (last == NULL) {
        return false;
    }
    *out = (struct sl_control_frame){.peer = net->in.peer,
                                     .answer = net->in.answer,
                                     .other = net->other && !net->in.answer,
                                     .from = net->other ? "10.0.0.99:5000" : "",
                                     .bytes = last,
                                     .length_bytes = net->in.length_bytes};
    net->in.bytes = NULL;
    return true;
}

static void net_heard(struct sl_control *base, const char *peer)
{
    (void)base, (void)peer;
}

static sl_err net_refuse(struct sl_control *base, const void *frame, size_t length_bytes)
{
    struct fake_net *net = (struct fake_net *)base;
    ck_assert_uint_lt(net->out_count, FAKE_LETTERS_MAX);
    net->out[net->out_count++] = letter_of(net->in.peer, frame, length_bytes, true);
    net->refused_count++;
    return SL_OK;
}

static void net_peer_key(struct sl_control *base, const char *name, const char *public_text)
{
    (void)base, (void)name, (void)public_text;
}
static int net_fd(const struct sl_control *base)
{
    (void)base;
    return -1;
}
static void net_close(struct sl_control *base)
{
    (void)base;
}
static const struct sl_control_ops net_ops = {
    .peer_add = net_peer_add,
    .send = net_send,
    .receive = net_receive,
    .heard = net_heard,
    .refuse = net_refuse,
    .peer_key = net_peer_key,
    .fd = net_fd,
    .close = net_close,
};

void fake_net_open(struct fake_net *net)
{
    memset(net, 0, sizeof(*net));
    net->base.ops = &net_ops;
    ck_assert_int_eq(sl_codec_create(8 * SL_MIB, &net->codec, NULL), SL_OK);
    ck_assert_int_eq(sl_codec_create(8 * SL_MIB, &net->take_codec, NULL), SL_OK);
}

void fake_net_close(struct fake_net *net)
{
    struct sl_control_frame frame;
    (void)net_receive(&net->base, &frame);
    (void)net_receive(&net->base, &frame); /* frees what was borrowed */
    for (uint32_t i = 0; i < net->out_count; i++) {
        free(net->out[i].bytes);
    }
    sl_codec_destroy(&net->codec);
    sl_codec_destroy(&net->take_codec);
}

void fake_net_give(struct fake_net *net, const char *peer, const void *bytes, size_t length_bytes,
                   bool answer)
{
    ck_assert_ptr_null(net->in.bytes);
    net->in = letter_of(peer, bytes, length_bytes, answer);
}

uint64_t fake_net_deliver(struct fake_net *net, const char *peer, struct sl_msg msg, bool answer)
{
    const void *frame = NULL;
    size_t length_bytes = 0;
    struct sl_error why = {0};
    msg.sender = sl_text_of(peer);
    msg.seq = answer ? 0 : ++net->seq;
    if (!answer && msg.budget_ns == 0) {
        msg.budget_ns = 60 * SL_NS_PER_S;
    }
    ck_assert_msg(sl_codec_encode(net->codec, &msg, &frame, &length_bytes, &why) == SL_OK, "%s",
                  why.text);
    fake_net_give(net, peer, frame, length_bytes, answer);
    return msg.seq;
}

static bool letter_is(struct fake_net *net, const struct fake_letter *letter, const char *peer,
                      uint32_t type, struct sl_msg *out)
{
    ck_assert_int_eq(
        sl_codec_decode(net->take_codec, letter->bytes, letter->length_bytes, out, NULL), SL_OK);
    return out->type == type && strcmp(letter->peer, peer) == 0;
}

bool fake_net_last(struct fake_net *net, const char *peer, uint32_t type, struct sl_msg *out)
{
    for (uint32_t i = net->out_count; i-- > 0;) {
        if (letter_is(net, &net->out[i], peer, type, out)) {
            return true;
        }
    }
    return false;
}

uint32_t fake_net_count(struct fake_net *net, const char *peer, uint32_t type)
{
    uint32_t count = 0;
    struct sl_msg msg;
    for (uint32_t i = 0; i < net->out_count; i++) {
        count += letter_is(net, &net->out[i], peer, type, &msg) ? 1 : 0;
    }
    return count;
}
