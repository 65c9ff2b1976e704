import { queryOptions } from '@tanstack/react-query'

import { client, unwrap } from '~/api/client'
import type { MemberRole } from '~/api/types'

export const membersKey = ['members'] as const

/** Members of an organisation, the longest ones first. */
export const membersQuery = (orgId: string) =>
  queryOptions({
    queryKey: [...membersKey, orgId],
    queryFn: () =>
      unwrap(client.GET('/api/v2/organizations/{org_id}/members', { params: { path: { org_id: orgId } } })),
    refetchInterval: 30_000,
  })

export function addMember(orgId: string, input: { email: string; role: MemberRole }) {
  return unwrap(
    client.POST('/api/v2/organizations/{org_id}/members', { params: { path: { org_id: orgId } }, body: input }),
  )
}

export const invitationsKey = ['invitations'] as const

/** Invitations of an organisation that can still be accepted, the newest first; for admins and owners. */
export const invitationsQuery = (orgId: string) =>
  queryOptions({
    queryKey: [...invitationsKey, orgId],
    queryFn: () =>
      unwrap(client.GET('/api/v2/organizations/{org_id}/invitations', { params: { path: { org_id: orgId } } })),
    refetchInterval: 30_000,
  })

/** All of them or none. The answer is the only one that has the links. */
export async function createInvitations(orgId: string, asked: { email: string; role: MemberRole }[]) {
  const { invitations } = await unwrap(
    client.POST('/api/v2/organizations/{org_id}/invitations', {
      params: { path: { org_id: orgId } },
      body: { invitations: asked },
    }),
  )
  return invitations
}

export function revokeInvitation(orgId: string, invitationId: string) {
  return unwrap(
    client.DELETE('/api/v2/organizations/{org_id}/invitations/{invitation_id}', {
      params: { path: { org_id: orgId, invitation_id: invitationId } },
    }),
  )
}

const one = (orgId: string, memberId: string) => ({ params: { path: { org_id: orgId, member_id: memberId } } })

export function changeRole(orgId: string, memberId: string, role: MemberRole) {
  return unwrap(
    client.PATCH('/api/v2/organizations/{org_id}/members/{member_id}', { ...one(orgId, memberId), body: { role } }),
  )
}

/** API keys that the person made in the organisation are revoked. */
export function removeMember(orgId: string, memberId: string) {
  return unwrap(client.DELETE('/api/v2/organizations/{org_id}/members/{member_id}', one(orgId, memberId)))
}

/** Takes who is signed in out of the organisation. */
export async function leaveOrganization(orgId: string): Promise<void> {
  await unwrap(client.POST('/api/v2/organizations/{org_id}/leave', { params: { path: { org_id: orgId } } }))
}
