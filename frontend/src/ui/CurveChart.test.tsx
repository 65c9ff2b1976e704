import { render } from '@testing-library/react'
import { expect, it } from 'vitest'

import { byteSteps, CurveChart, steps } from './CurveChart'

it('takes round steps that cover the highest value', () => {
  expect(steps(58_000)).toEqual([0, 20_000, 40_000, 60_000])
  expect(steps(0.9).at(-1)).toBeGreaterThanOrEqual(0.9)
  expect(steps(0)).toEqual([0, 1])
})

it('takes steps of bytes that are round as they are read', () => {
  expect(byteSteps(14 * 1024)).toEqual([0, 5 * 1024, 10 * 1024, 15 * 1024])
  expect(byteSteps(900)).toEqual([0, 500, 1000])
  expect(byteSteps(0)).toEqual([0, 1])
})

it('says every point to those who do not see it, and leaves out what was not measured', () => {
  const curves = [
    {
      label: 'images',
      color: '--chart-images',
      points: [
        { x: 32, y: 58 },
        { x: 64, y: null },
      ],
    },
  ]
  const { container } = render(
    <CurveChart
      title="WAL"
      curves={curves}
      xText={(x) => `${String(x)} MB`}
      yText={(y) => `${String(y)} B`}
      xLabel="max_wal_size"
    />,
  )
  expect(container.querySelector('svg[role=img]')?.getAttribute('aria-label')).toBe(
    'WAL. images: 32 MB 58 B, 64 MB not measured.',
  )
  expect(container.querySelectorAll('circle')).toHaveLength(1)
})
