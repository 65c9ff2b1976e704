import { expect, it } from 'vitest'

import type { BranchDatabase, Role } from '~/api/types'

import { deleteRoleRefusal } from './can'

const role = (name: string) => ({ name }) as Role
const database = (name: string, owner_name: string) => ({ name, owner_name }) as BranchDatabase

it('keeps a role that owns databases, and says which', () => {
  const roles = [role('owner'), role('reader')]
  const databases = [database('shop', 'owner'), database('stock', 'owner'), database('other', 'reader')]
  expect(deleteRoleRefusal(role('owner'), roles, databases)).toBe(
    'It owns shop, stock: give them another owner first.',
  )
  expect(deleteRoleRefusal(role('reader'), roles, databases)).toBe('It owns other: give it another owner first.')
})

it('keeps the last role, and lets any other go', () => {
  expect(deleteRoleRefusal(role('one'), [role('one')], [])).toMatch(/only role/)
  expect(deleteRoleRefusal(role('one'), [role('one'), role('two')], [])).toBeNull()
})
