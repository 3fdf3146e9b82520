/* One side of a benchmark through libfabric: an endpoint for tagged messages with a queue of its own, whose calls are serialised. */
#ifndef FI_SIDE_H
#define FI_SIDE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

enum { NAME_MAX_BYTES = 256 };

struct fi_side {
    struct fid_cq *cq;
    struct fid_av *av;
    struct fid_ep *ep;
};

static inline void check(ssize_t status, const char *what)
{
    if (status < 0) {
        fprintf(stderr, "%s: %s\n", what, fi_strerror((int)-status));
        exit(1);
    }
}

static inline double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static inline void open_side(struct fi_side *s, const char *provider)
{
    struct fi_info *hints = fi_allocinfo(), *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED, .size = 4096};
    struct fi_av_attr av_attr = {.type = FI_AV_TABLE, .count = 4};

    hints->caps = FI_TAGGED;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->fabric_attr->prov_name = strdup(provider);
    check(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info), provider);
    check(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
    check(fi_domain(fabric, info, &domain, NULL), "fi_domain");
    check(fi_cq_open(domain, &cq_attr, &s->cq, NULL), "fi_cq_open");
    check(fi_av_open(domain, &av_attr, &s->av, NULL), "fi_av_open");
    check(fi_endpoint(domain, info, &s->ep, NULL), "fi_endpoint");
    check(fi_ep_bind(s->ep, &s->av->fid, 0), "fi_ep_bind");
    check(fi_ep_bind(s->ep, &s->cq->fid, FI_RECV | FI_TRANSMIT), "fi_ep_bind");
    check(fi_enable(s->ep), "fi_enable");
    fi_freeinfo(hints);
}

/* The name of a side, as others are told. */
static inline void name_of(const struct fi_side *s, char name[NAME_MAX_BYTES])
{
    size_t len = NAME_MAX_BYTES;
    memset(name, 0, NAME_MAX_BYTES);
    check(fi_getname(&s->ep->fid, name, &len), "fi_getname");
}

/* The side of this name, as a destination. */
static inline fi_addr_t peer_of(struct fi_side *s, const char *name)
{
    fi_addr_t peer;
    if (fi_av_insert(s->av, name, 1, &peer, 0, NULL) != 1)
        check(-FI_EINVAL, "fi_av_insert");
    return peer;
}

#endif
